// Package auth authenticates and authorizes callers: they show a bearer token or a client
// certificate, each with scopes and, where that is wanted, with the policies that it may
// use. It reads them from a file that holds digests of tokens, never tokens.
//
// It does not know HTTP or gRPC: servers hand it what a caller showed, and it hands back a
// Caller or says what is missing.
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
	Decide  Scope = 1 << iota // check and take; what stands in for them in other protocols
	Record                    // record and refund
	Admin                     // reset, overrides, explain, policies and how far callers go past them
	Metrics                   // read the metrics

	all = Decide | Record | Admin | Metrics
)

// scopes are the names of all scopes, as the file has them.
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

// Caller is an authenticated caller. The zero Caller may ask for nothing.
type Caller struct {
	Name      string // as the file has it; empty: nobody was asked for a name
	scopes    Scope
	policies  map[string]struct{} // that it may use
	anyPolicy bool                // it may use those that policies does not hold, too
}

// anyone is the caller of a server without authentication, and certified the one of
// a server that asks for a certificate and nothing else. They may do everything.
var anyone, certified = &Caller{scopes: all, anyPolicy: true}, &Caller{scopes: all, anyPolicy: true}

// May reports whether c has any of these scopes.
func (c *Caller) May(scopes Scope) bool { return c.scopes&scopes != 0 }

// MayUse reports whether c may ask about a policy.
func (c *Caller) MayUse(policy string) bool {
	_, may := c.policies[policy]
	return may || c.anyPolicy
}

// MayUseAll reports whether c may ask about every policy, whatever its name.
func (c *Caller) MayUseAll() bool { return c.anyPolicy }

// idle reports whether a scope of c is about policies, and it may use none.
func (c *Caller) idle() bool {
	return c.May(Decide|Record|Admin) && !c.anyPolicy && len(c.policies) == 0
}

// Callers are all that a file lists. They do not change.
type Callers struct {
	byToken       map[digest]*Caller
	byCertificate map[certificateName]*Caller
}

// digest is the SHA-256 of a token.
type digest [sha256.Size]byte

// Len returns how many callers there are.
func (c *Callers) Len() int { return len(c.byToken) + len(c.byCertificate) }

// Idle returns the names, in order, of callers that may use no policy, though their scopes
// are about some.
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

// Certificates reports whether some callers are known by their certificate.
func (c *Callers) Certificates() bool { return len(c.byCertificate) > 0 }

// Errors of callers that may not ask.
var (
	// ErrUnauthenticated is wrapped by errors of callers that are not authenticated.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden is wrapped by errors of authenticated callers that may not ask for this.
	ErrForbidden = errors.New("not permitted")

	ErrNoToken      = unauthenticated("no bearer token was sent")
	ErrUnknownToken = unauthenticated("the bearer token is not known")
	ErrNotBearer    = unauthenticated("the credentials are no bearer token")
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

// NewKeyring returns a Keyring of a server whose listeners ask for a client certificate
// and verify it, if mutual says so.
func NewKeyring(mutual bool) *Keyring { return &Keyring{mutual: mutual} }

// Callers returns those in force, nil if there is no authentication.
func (k *Keyring) Callers() *Callers { return k.callers.Load() }

// Set puts callers in force in place of all others.
func (k *Keyring) Set(callers *Callers) { k.callers.Store(callers) }

// Open reports whether every client that reaches the server may ask for everything.
func (k *Keyring) Open() bool { return !k.mutual && k.callers.Load() == nil }

// Bounds of tokens: longer ones are not hashed.
const maxTokenLen = 512

// scheme is in front of a token in the header Authorization, in any case.
const scheme = "bearer "

// Caller returns the caller by this value of the header Authorization, and this certificate, which
// was verified; each may be missing. A token that is shown is looked at before the certificate.
// Errors are ErrUnauthenticated.
//
// Tokens are found by their SHA-256: how long that takes says nothing about any token, as
// nobody can choose what the digest of a guess begins with.
func (k *Keyring) Caller(authorization string, certificate *x509.Certificate) (*Caller, error) {
	callers := k.callers.Load()
	if callers == nil {
		if k.mutual {
			return certified, nil
		}
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

// bearer returns the caller whose token it is.
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

// certificateName is a name of a client certificate. A URI is told from other names: an
// authority that vouches for one kind may let its customers choose the other.
type certificateName struct {
	name string
	uri  bool
}

// certificateNameOf returns the name that the file means by text: a URI has a colon, which no
// DNS name has.
func certificateNameOf(text string) certificateName {
	return certificateName{text, strings.Contains(text, ":")}
}

// certified returns the caller whose certificate it is: by its first name that is listed.
func (c *Callers) certified(certificate *x509.Certificate) (*Caller, error) {
	for _, name := range namesOf(certificate) {
		if caller, known := c.byCertificate[name]; known {
			return caller, nil
		}
	}
	return nil, ErrNoToken
}

// namesOf returns what a client certificate is known by: its URIs and DNS names or, where it
// has none, the common name of its subject. None has no names.
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
