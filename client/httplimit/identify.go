package httplimit

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// Identify returns who sent a request, empty if that is not known.
type Identify func(*http.Request) string

const (
	// unidentified is in front of the address of who is not known otherwise. No header can have
	// it, so that nobody uses up another one's limit by it.
	unidentified = "ip\n"
	separator    = "\n" // between the parts of what Both identifies
	// maxIdentifierLen is what ratelimitd takes, in bytes.
	maxIdentifierLen = 1024
	// subnet is what a customer has of IPv6 addresses: one may use as many as they like of it.
	subnet = 64
)

// bounded returns identifier, or a hash of one that ratelimitd would not take.
func bounded(identifier string) string {
	if len(identifier) <= maxIdentifierLen && utf8.ValidString(identifier) {
		return identifier
	}
	sum := sha256.Sum256([]byte(identifier))
	return "sha256\n" + hex.EncodeToString(sum[:])
}

// Header identifies by a header that the service itself, or who is in front of it, trusts.
func Header(name string) Identify {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// APIKey identifies by X-API-Key, or else by the token of "Authorization: Bearer".
func APIKey() Identify {
	return func(r *http.Request) string {
		if key := r.Header.Get("X-Api-Key"); key != "" {
			return key
		}
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return ""
		}
		return strings.TrimSpace(token)
	}
}

// User identifies by the user name of basic authentication, which the service must have
// checked.
func User() Identify {
	return func(r *http.Request) string {
		name, _, _ := r.BasicAuth()
		return name
	}
}

// Path identifies by the path, so that all who ask for it share a limit.
func Path() Identify { return func(r *http.Request) string { return r.URL.Path } }

// Both identifies by all of several together, such as the address and the path. It knows
// nobody whom one of them does not know.
func Both(all ...Identify) Identify {
	return func(r *http.Request) string {
		parts := make([]string, len(all))
		for i, identify := range all {
			if parts[i] = identify(r); parts[i] == "" {
				return ""
			}
		}
		return strings.Join(parts, separator)
	}
}

// IP identifies by the client's address: that of the connection or, while that is one of
// trusted, the one that it forwards for by X-Forwarded-For. Of IPv6, a /64 is one client.
func IP(trusted ...netip.Prefix) Identify {
	return func(r *http.Request) string {
		address, ok := parseAddress(r.RemoteAddr)
		if !ok {
			return r.RemoteAddr // of a socket that has none
		}
		for hops := r.Header["X-Forwarded-For"]; isTrusted(address, trusted); {
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

func isTrusted(address netip.Addr, trusted []netip.Prefix) bool {
	for _, prefix := range trusted {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

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
