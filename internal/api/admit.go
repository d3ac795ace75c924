package api

import (
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// open is the scope of routes without authentication.
const open auth.Scope = 0

// otherSites refuses changes by pages of other sites (CSRF): for any page, a browser sends its client certificate, and
// requests from this machine's address.
var otherSites = http.NewCrossOriginProtection()

// admit authenticates the caller, and refuses one that has none of scopes, before any of the body is read.
func (s *Server) admit(x *exchange, r *http.Request, scopes auth.Scope) error {
	if scopes == open {
		return nil
	}
	if err := s.addressed(r.Host); err != nil {
		return err
	}
	if scopes == auth.Admin && otherSites.Check(r) != nil {
		return encode.ErrOtherSite
	}
	credentials := r.Header["Authorization"]
	authorization := ""
	switch len(credentials) {
	case 0:
	case 1:
		authorization = credentials[0]
	default: // a proxy in between might use another one
		return auth.ErrNotBearer
	}
	caller, err := s.opts.Keyring.Caller(authorization, certificateOf(r))
	if err != nil {
		return err
	}
	x.caller = caller
	return needs(caller, scopes)
}

// certificateOf returns the client's certificate, if one was verified.
func certificateOf(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return nil
	}
	return r.TLS.VerifiedChains[0][0]
}

// scrapeRoom is the memory of an answer of /metrics to a slow reader, with some series for each limit.
const scrapeRoom = 4 << 20

// guard passes requests of callers with one of scopes on to next, which takes scrapeRoom.
func (s *Server) guard(scopes auth.Scope, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		if err := s.admit(x, r, scopes); err != nil {
			s.fail(x, r, err)
			return
		}
		if !x.share.Charge(scrapeRoom) {
			s.fail(x, r, decode.ErrBusy)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// scopeError is the error of a known caller without any of the needed scopes.
type scopeError struct{ needed auth.Scope }

// Error names the scopes.
func (e *scopeError) Error() string { return "it needs the scope " + e.needed.String() }

// Unwrap returns auth.ErrForbidden.
func (e *scopeError) Unwrap() error { return auth.ErrForbidden }

func needs(caller *auth.Caller, scopes auth.Scope) error {
	if caller.May(scopes) {
		return nil
	}
	return &decode.Error{
		Kind:   &scopeError{scopes},
		Detail: "The caller is not permitted to ask for this: it needs the scope " + scopes.String() + ".",
	}
}

// mayUse returns an error if caller may not use policy. It does not tell whether the policy exists.
func mayUse(caller *auth.Caller, policy string) error {
	if caller.MayUse(policy) {
		return nil
	}
	return &decode.Error{Kind: auth.ErrForbidden, Field: "policy", Detail: "The caller is not permitted to use this policy."}
}

// decodeCaller returns the caller of a request without a body.
func decodeCaller(_ *http.Request, m *scratch) (*auth.Caller, error) { return m.caller, nil }

// permitted returns an error if caller may not do what c asks for. A reservation was permitted when it was made.
func permitted(caller *auth.Caller, c *decode.Call) error {
	if err := needs(caller, scopeOf(c.Op)); err != nil {
		return err
	}
	for i := range c.Demands {
		err := mayUse(caller, c.Demands[i].Policy)
		if err != nil && c.Listed {
			return decode.Under(decode.DemandPath(i), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scopeOf returns the scope that permits op.
func scopeOf(op count.Op) auth.Scope {
	switch op {
	case count.OpRecord:
		return auth.Record
	case decode.OpConfirm:
		return auth.Decide | auth.Record
	}
	return auth.Decide
}

// challengeOf returns the value of WWW-Authenticate (RFC 6750) for err, empty unless err is about the caller.
func challengeOf(err error) string {
	const bearer = `Bearer realm="ratelimitd"`
	missing := (*scopeError)(nil)
	switch {
	case errors.As(err, &missing):
		return bearer + `, error="insufficient_scope", scope="` + strings.ReplaceAll(missing.needed.String(), " or ", " ") + `"`
	case errors.Is(err, auth.ErrNoToken):
		return bearer
	case errors.Is(err, auth.ErrUnauthenticated):
		return bearer + `, error="invalid_token"`
	}
	return ""
}
