// Package origin tells who sent a request: the client's address behind proxies that are
// trusted, or what a header says.
//
// All ways into the service go by it, so that one client is one identifier whichever way a request comes.
// It does not know what is limited.
package origin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"
)

const (
	// Unidentified is in front of the address of who is not known otherwise. No header can have
	// it, and no name is taken that has, so that nobody uses up another one's limit by it.
	Unidentified = "ip\n"
	// Everybody is the identifier of all who ask, when they share a limit.
	Everybody = "all\n"
	// Hashed is in front of the hash of an identifier that ratelimitd would not take.
	Hashed = "sha256\n"
	// maxIdentifierLen is what ratelimitd takes, in bytes.
	maxIdentifierLen = 1024
)

// Source is what tells who sent a request; make one with ParseSource. The zero value is the
// client's address.
type Source struct {
	kind   string // "": ip
	header string // in canonical form, of kindHeader
}

// The kinds of a Source, as they are written.
const (
	kindIP     = "ip"
	kindHeader = "header"
	kindAPIKey = "api-key"
	kindUser   = "user"
	kindAll    = "all"
)

// ParseSource reads what identifies:
//
//	ip           the client's address
//	header:NAME  the value of a header
//	api-key      X-API-Key, or the token of "Authorization: Bearer"; nobody by both, as only
//	             one of them counts for who comes after, and the other could be made up
//	user         the user name of basic authentication
//	all          nothing: all who ask share a limit
func ParseSource(text string) (Source, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case kind == kindHeader && strings.EqualFold(name, "Host"):
		return Source{}, errors.New("header:Host identifies nobody: the host is in no header here; use another, ip, api-key, user or all")
	case kind == kindHeader && isToken(name):
		return Source{kindHeader, http.CanonicalHeaderKey(name)}, nil
	case named || kind == kindHeader:
	case kind == kindIP, kind == kindAPIKey, kind == kindUser, kind == kindAll:
		return Source{kind: kind}, nil
	}
	return Source{}, fmt.Errorf("%.64q identifies nobody: use ip, header:NAME, api-key, user or all", text)
}

// isToken reports whether name can be that of a header (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	for _, c := range []byte(name) {
		letter := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

// String returns s as ParseSource reads it.
func (s Source) String() string {
	switch s.kind {
	case "":
		return kindIP
	case kindHeader:
		return kindHeader + ":" + s.header
	}
	return s.kind
}

// Identify returns who sent r, never empty and never longer than ratelimitd takes. Of whom s
// does not know, the address is returned, marked as such: nobody gets around a limit by leaving
// a header out, or by sending it twice.
func (s Source) Identify(r *http.Request, trusted Proxies) string {
	switch identifier := s.read(r); {
	case s.kind == kindAll:
		return Everybody
	case identifier != "":
		return Bounded(identifier)
	case s.kind == "" || s.kind == kindIP:
		return Bounded(trusted.Client(r))
	}
	return Bounded(Unidentified + trusted.Client(r))
}

// read returns what r says of its sender, empty if it does not.
func (s Source) read(r *http.Request) string {
	switch s.kind {
	case kindHeader:
		return only(r.Header[s.header])
	case kindAPIKey:
		token := bearer(only(r.Header["Authorization"]))
		if len(r.Header["X-Api-Key"]) == 0 {
			return token
		}
		if token != "" {
			return ""
		}
		return only(r.Header["X-Api-Key"])
	case kindUser:
		name, _, _ := r.BasicAuth()
		if strings.Contains(name, "\n") { // encoded, it can have what no header can
			return ""
		}
		return name
	}
	return ""
}

// only returns the one value of a header. Of several, nobody knows which one counts for who
// comes after.
func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// bearer returns the token of the header Authorization.
func bearer(authorization string) string {
	scheme, token, _ := strings.Cut(authorization, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Bounded returns identifier, or a hash of one that ratelimitd would not take.
func Bounded(identifier string) string {
	if identifier == "" {
		return Unidentified + "unknown"
	}
	if len(identifier) <= maxIdentifierLen && utf8.ValidString(identifier) {
		return identifier
	}
	sum := sha256.Sum256([]byte(identifier))
	return Hashed + hex.EncodeToString(sum[:])
}

// Proxies are the addresses of those whose X-Forwarded-For is believed; none: nobody's.
type Proxies []netip.Prefix

// ParseProxies reads addresses and prefixes with commas between, such as
// "10.0.0.0/8,192.0.2.7"; "none" and empty text are nobody.
func ParseProxies(text string) (Proxies, error) {
	if text = strings.TrimSpace(text); text == "" || text == "none" {
		return nil, nil
	}
	var proxies Proxies
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		if address, failed := netip.ParseAddr(part); failed == nil && address.Zone() == "" {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("%.64q is no address and no prefix: write them such as 10.0.0.0/8 or 192.0.2.7", part)
		}
		proxies = append(proxies, prefix)
	}
	return proxies, nil
}

// Trust reports whether an address, with a port or without, is one of p.
func (p Proxies) Trust(address string) bool {
	parsed, ok := parseAddress(address)
	return ok && p.contain(parsed)
}

func (p Proxies) contain(address netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

// Client returns the address that r comes from: that of the connection or, while that is one of
// p, the one that it forwards for by X-Forwarded-For. Of IPv6, a /64 is one client.
func (p Proxies) Client(r *http.Request) string {
	address, ok := parseAddress(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr // of a socket that has none
	}
	for hops := r.Header["X-Forwarded-For"]; p.contain(address); {
		var hop string
		if hop, hops = lastHop(hops); hop == "" {
			break
		}
		before, ok := parseAddress(hop)
		if !ok {
			break // the proxy itself is who is known
		}
		address = before
	}
	return client64(address)
}

// lastHop returns the last of the addresses in headers, which is the nearest, and the headers
// without it; empty: there is none.
func lastHop(headers []string) (hop string, rest []string) {
	if len(headers) == 0 {
		return "", nil
	}
	last := headers[len(headers)-1]
	comma := strings.LastIndexByte(last, ',')
	rest = headers[:len(headers)-1]
	if comma >= 0 {
		rest = append(rest[:len(rest):len(rest)], last[:comma])
	}
	return strings.TrimSpace(last[comma+1:]), rest
}

// parseAddress reads an address with a port or without.
func parseAddress(text string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), true
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return address.Unmap().WithZone(""), err == nil
}

// subnet is what a customer has of IPv6 addresses: one may use as many as they like of it.
const subnet = 64

func client64(address netip.Addr) string {
	if address.Is4() {
		return address.String()
	}
	prefix, err := address.Prefix(subnet)
	if err != nil {
		return address.String() // never: 64 is less than 128
	}
	return prefix.String()
}
