// Package auth authenticates and authorizes callers, which have a bearer token or a client certificate, scopes, and
// perhaps a list of the policies that they may use. It reads them from a file that contains digests of tokens, never
// tokens.
//
// It does not know HTTP or gRPC: given the credentials of a request, it returns a Caller or an error.
package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// Scope is a set of things that a caller may do. The zero Scope is none.
type Scope uint8

// The scopes.
const (
	Decide  Scope = 1 << iota // check and take, and their counterparts in other protocols
	Record                    // record and refund
	Admin                     // reset, overrides, explain, policies, overshoot and shadows
	Metrics                   // read the metrics

	all = Decide | Record | Admin | Metrics
)

// scopes are the names of all scopes, as in the file.
var scopes = []struct {
	name string
	Scope
}{{"decide", Decide}, {"record", Record}, {"admin", Admin}, {"metrics", Metrics}}

// ScopeNames returns the names of all scopes.
func ScopeNames() (names []string) { return all.names() }

// ParseScope returns the scope of that name.
func ParseScope(name string) (Scope, bool) {
	for _, s := range scopes {
		if s.name == name {
			return s.Scope, true
		}
	}
	return 0, false
}

func (s Scope) names() (names []string) {
	for _, known := range scopes {
		if s&known.Scope != 0 {
			names = append(names, known.name)
		}
	}
	return names
}

// String returns the names of the scopes, as in "decide or record".
func (s Scope) String() string { return strings.Join(s.names(), " or ") }

// Caller is an authenticated caller. The zero Caller has no permissions.
type Caller struct {
	Name      string // in the file; empty: there is no file
	scopes    Scope
	policies  map[string]struct{} // that it may use
	anyPolicy bool                // it may use all policies
}

// anyone is the caller of a server without authentication, or one that only verifies certificates.
var anyone = &Caller{scopes: all, anyPolicy: true}

// May reports whether c has any of these scopes.
func (c *Caller) May(scopes Scope) bool { return c.scopes&scopes != 0 }

// MayUse reports whether c may use a policy.
func (c *Caller) MayUse(policy string) bool {
	_, may := c.policies[policy]
	return may || c.anyPolicy
}

// MayUseAll reports whether c may use every policy.
func (c *Caller) MayUseAll() bool { return c.anyPolicy }

// idle reports whether c has a scope for policies, but may use no policy.
func (c *Caller) idle() bool {
	return c.May(Decide|Record|Admin) && !c.anyPolicy && len(c.policies) == 0
}

// Callers are the callers in a file. They are immutable.
type Callers struct {
	byToken       map[digest]*Caller
	byCertificate map[certificateName]*Caller
}

// digest is the SHA-256 of a token.
type digest [sha256.Size]byte

// Len returns the number of callers.
func (c *Callers) Len() int { return len(c.byToken) + len(c.byCertificate) }

// Idle returns the sorted names of callers that have a scope for policies, but may use no policy.
func (c *Callers) Idle() []string {
	names := make(map[string]struct{})
	for _, callers := range []iter.Seq[*Caller]{maps.Values(c.byToken), maps.Values(c.byCertificate)} {
		for caller := range callers {
			if caller.idle() {
				names[caller.Name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Certificates reports whether some callers are identified by their certificate.
func (c *Callers) Certificates() bool { return len(c.byCertificate) > 0 }

// Errors of refused callers.
var (
	// ErrUnauthenticated is wrapped by errors of unknown callers.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden is wrapped by errors of known callers without the permission.
	ErrForbidden = errors.New("not permitted")

	ErrNoToken      = unauthenticated("no bearer token was sent")
	ErrUnknownToken = unauthenticated("the bearer token is not known")
	ErrNotBearer    = unauthenticated("the credentials are not a bearer token")
)

type unauthenticated string

// Error returns the reason.
func (e unauthenticated) Error() string { return string(e) }

// Is reports that e is ErrUnauthenticated.
func (e unauthenticated) Is(target error) bool { return target == ErrUnauthenticated }

// Keyring holds the callers in force. It is safe for concurrent use. The zero Keyring authenticates nobody.
type Keyring struct {
	callers atomic.Pointer[Callers]
	mutual  bool
}

// NewKeyring returns a Keyring of a server. mutual says that its listeners verify client certificates.
func NewKeyring(mutual bool) *Keyring { return &Keyring{mutual: mutual} }

// Callers returns the callers in force, nil if there are none.
func (k *Keyring) Callers() *Callers { return k.callers.Load() }

// Set puts callers in force in place of all others.
func (k *Keyring) Set(callers *Callers) { k.callers.Store(callers) }

// Open reports whether the server has no authentication.
func (k *Keyring) Open() bool { return !k.mutual && k.callers.Load() == nil }

// maxTokenLen is the maximum length of tokens, in bytes. Longer ones are not hashed.
const maxTokenLen = 512

// scheme is in front of a token in the header Authorization, in any case.
const scheme = "bearer "

// Caller returns the caller with this value of the header Authorization, or this verified certificate. Each may be
// missing; a token comes before the certificate. Errors wrap ErrUnauthenticated.
//
// Tokens are looked up by their SHA-256. The time of the lookup reveals nothing about a token, because nobody can
// choose the first bytes of the digest of a guess.
func (k *Keyring) Caller(authorization string, certificate *x509.Certificate) (*Caller, error) {
	callers := k.callers.Load()
	if callers == nil {
		return anyone, nil
	}
	if authorization == "" {
		return callers.certified(certificate)
	}
	if len(authorization) <= len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return nil, ErrNotBearer
	}
	return callers.bearer(authorization[len(scheme):])
}

// bearer returns the caller with this token.
func (c *Callers) bearer(token string) (*Caller, error) {
	if len(token) > maxTokenLen {
		return nil, ErrUnknownToken
	}
	var text [maxTokenLen]byte
	caller, known := c.byToken[sha256.Sum256(text[:copy(text[:], token)])]
	if !known {
		return nil, ErrUnknownToken
	}
	return caller, nil
}

// certificateName is a name of a client certificate. URIs are distinguished from other names, because an authority that
// verifies one kind may let its customers choose the other.
type certificateName struct {
	name string
	uri  bool
}

// certificateNameOf returns the name that text in the file stands for: a URI if it has a colon, which DNS names do not
// have.
func certificateNameOf(text string) certificateName {
	return certificateName{text, strings.Contains(text, ":")}
}

// certified returns the caller with this certificate, by the first of its names in the file.
func (c *Callers) certified(certificate *x509.Certificate) (*Caller, error) {
	for _, name := range namesOf(certificate) {
		if caller, known := c.byCertificate[name]; known {
			return caller, nil
		}
	}
	return nil, ErrNoToken
}

// namesOf returns the names of a client certificate: its URIs and DNS names or, without these, the common name of its
// subject. It returns nil for nil.
func namesOf(certificate *x509.Certificate) (names []certificateName) {
	if certificate == nil {
		return nil
	}
	for _, uri := range certificate.URIs {
		names = append(names, certificateName{uri.String(), true})
	}
	for _, host := range certificate.DNSNames {
		names = append(names, certificateName{host, false})
	}
	if len(names) == 0 && certificate.Subject.CommonName != "" {
		names = append(names, certificateName{certificate.Subject.CommonName, false})
	}
	return names
}
