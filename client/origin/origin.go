// Package origin identifies the sender of a request: by the client's address behind trusted proxies, or by a header.
//
// All entrances of the service use it, so that a client has the same identifier at each. It knows nothing of policies.
// It is shared with the service, and may change in any release.
package origin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

const (
	// Unidentified precedes the address of a caller that has no other identifier. No header can have it, and names that
	// have it are ignored, so that nobody uses up another caller's limit by it.
	Unidentified = "ip\n"
	// Everybody is the identifier of all callers if they share a limit.
	Everybody = "all\n"
	// Hashed precedes the hash of an identifier that ratelimitd would not accept.
	Hashed = "sha256\n"
	// Named precedes a name that looks like an address, as a header may have any text: so nobody uses up the limit of
	// an address.
	Named = "name\n"
	// maxIdentifierLen is ratelimitd's maximum, in bytes.
	maxIdentifierLen = 1024
)

// Source is a way to identify the sender of a request. Make one with ParseSource. The zero value is the client's
// address.
type Source struct {
	kind   string // "": ip
	header string // in canonical form, for kindHeader
}

// The kinds of a Source in text.
const (
	kindIP     = "ip"
	kindHeader = "header"
	kindAPIKey = "api-key"
	kindUser   = "user"
	kindAll    = "all"
)

// ParseSource reads a Source:
//
//	ip           the client's address
//	header:NAME  the value of a header
//	api-key      X-API-Key, or the token of "Authorization: Bearer"; nobody by both, as only
//	             one of them counts for the service behind, and the other could be made up
//	user         the user name of basic authentication
//	all          nothing: all callers share a limit
func ParseSource(text string) (Source, error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case kind == kindHeader && strings.EqualFold(name, "Host"):
		return Source{}, errors.New("header:Host identifies nobody: the host is in no header here; use another, ip, api-key, user or all")
	case kind == kindHeader && isToken(name):
		return Header(name), nil
	case named || kind == kindHeader:
	case kind == kindIP, kind == kindAPIKey, kind == kindUser, kind == kindAll:
		return Source{kind: kind}, nil
	}
	return Source{}, fmt.Errorf("%.64q identifies nobody: use ip, header:NAME, api-key, user or all", text)
}

// isToken reports whether name is a valid name of a header (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	for _, c := range []byte(name) {
		letter := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return name != ""
}

// String returns s in the form that ParseSource reads.
func (s Source) String() string {
	switch s.kind {
	case "":
		return kindIP
	case kindHeader:
		return kindHeader + ":" + s.header
	}
	return s.kind
}

// Header returns the Source that is the value of a header.
func Header(name string) Source { return Source{kindHeader, http.CanonicalHeaderKey(name)} }

// APIKey returns the Source api-key.
func APIKey() Source { return Source{kind: kindAPIKey} }

// User returns the Source user.
func User() Source { return Source{kind: kindUser} }

// Headers returns the names of the headers that s reads, in canonical form.
func (s Source) Headers() []string {
	switch s.kind {
	case kindHeader:
		return []string{s.header}
	case kindAPIKey:
		return []string{"X-Api-Key", "Authorization"}
	case kindUser:
		return []string{"Authorization"}
	}
	return nil
}

// Identify returns the identifier of r's sender, never empty and never longer than ratelimitd accepts. If s finds none,
// it is the address, marked as such: nobody evades a limit by omitting a header, or by sending it twice. The error is
// ErrHidden, if the address is needed and hidden.
func (s Source) Identify(r *http.Request, trusted Proxies) (string, error) {
	if s.kind == kindAll {
		return Everybody, nil
	}
	if name := s.Name(r); name != "" {
		return Bounded(name), nil
	}
	address, err := trusted.Client(r)
	if err != nil {
		return "", err
	}
	if s.kind == "" || s.kind == kindIP {
		return Bounded(address), nil
	}
	return Bounded(Unidentified + address), nil
}

// Name returns the sender's name in r; empty if r has none, or has it twice. A name that looks like an address is
// marked.
func (s Source) Name(r *http.Request) string {
	name := s.read(r)
	if isAddress(strings.TrimSpace(name)) {
		return Named + name
	}
	return name
}

// read returns the sender's name in r, empty if there is none.
func (s Source) read(r *http.Request) string {
	switch s.kind {
	case kindHeader:
		return only(r.Header[s.header])
	case kindAPIKey:
		token := bearer(only(r.Header["Authorization"]))
		switch {
		case len(r.Header["X-Api-Key"]) == 0:
			return token
		case token != "" || len(r.Header["Authorization"]) > 1:
			return ""
		}
		return only(r.Header["X-Api-Key"])
	case kindUser:
		name, _, _ := r.BasicAuth()                                             // the first of several
		if len(r.Header["Authorization"]) > 1 || strings.Contains(name, "\n") { // encoded, it can have bytes that no header can
			return ""
		}
		return name
	}
	return ""
}

// only returns the one value of a header. Of several values, it is not known which one the service behind uses.
func only(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// bearer returns the token of the header Authorization.
func bearer(authorization string) string {
	const scheme = "Bearer"
	if len(authorization) <= len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) ||
		!strings.ContainsRune(" \t", rune(authorization[len(scheme)])) {
		return ""
	}
	return strings.TrimSpace(authorization[len(scheme):])
}

// Bounded returns identifier, or its hash if ratelimitd would not accept it.
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
