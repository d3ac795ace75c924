package api

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/audit"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// asker is the sender of a request, and the request's id, for the audit log.
type asker struct {
	caller    *auth.Caller
	subject   string // of the client's certificate, where the caller has no name
	requestID string
}

// askerOf returns the sender of r.
func (m *scratch) askerOf(r *http.Request) asker {
	a := asker{caller: m.caller, requestID: m.requestID}
	if certificate := certificateOf(r); certificate != nil {
		a.subject = certificate.Subject.String()
	}
	return a
}

// name returns the caller's name, else the subject of its certificate.
func (a *asker) name() string {
	switch {
	case a.caller != nil && a.caller.Name != "":
		return a.caller.Name
	case a.subject != "":
		return "certificate " + a.subject
	}
	return audit.Anonymous
}

// keyDigits is the number of hex digits of a key in the audit log: enough to recognize it with "ratelimitd key", and
// too few to make calls about it.
const keyDigits = 16

// audit logs the action of a, and its outcome, with the first digits of the key in place of the identifier.
func (s *Server) audit(ctx context.Context, a *asker, act string, about *limiter.Demand, err error, more ...slog.Attr) {
	if s.opts.Audit == nil {
		return
	}
	did := &audit.Act{Name: act, Who: a.name(), Failed: err != nil, RequestID: a.requestID, More: more}
	if key, unknown := s.engine.KeyOf(about.Policy, about.Identifier); unknown == nil {
		did.Policy, did.Key = about.Policy, hex.EncodeToString(key.Bytes())[:keyDigits]
	}
	if _, known := s.engine.Policy(about.Policy); known && about.Identifier == "" { // it is about a prefix
		did.Policy = about.Policy
	}
	if err != nil {
		did.More = append(did.More, slog.Int("status", encode.ProblemOf(err).Status))
	}
	s.opts.Audit.Did(ctx, did)
}

// auditRefusal logs that r was refused with err, if err is about the caller or the host name.
func (s *Server) auditRefusal(x *exchange, r *http.Request, err error) {
	if s.opts.Audit == nil || reasonOf(err) == "" {
		return
	}
	a := x.askerOf(r)
	s.opts.Audit.Refused(r.Context(), &audit.Refusal{
		Who: a.name(), Where: routeOf(r), Reason: reasonOf(err), RequestID: a.requestID,
	})
}

// reasonOf returns the reason of a refusal that is about the caller, without parts of the request; empty for other
// errors.
func reasonOf(err error) string {
	if missing := (*scopeError)(nil); errors.As(err, &missing) {
		return missing.Error()
	}
	for _, known := range []error{
		auth.ErrNoToken, auth.ErrUnknownToken, auth.ErrNotBearer, auth.ErrForbidden, encode.ErrHost, encode.ErrOtherSite,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return ""
}
