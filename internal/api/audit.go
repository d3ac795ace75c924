package api

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// asker is who sent a request and what it is called, for the audit log.
type asker struct {
	caller    *auth.Caller
	subject   string // of the client's certificate, where the caller has no name
	requestID string
}

// askerOf returns who sent r.
func (m *scratch) askerOf(r *http.Request) asker {
	a := asker{caller: m.caller, requestID: m.requestID}
	if certificate := certificateOf(r); certificate != nil {
		a.subject = certificate.Subject.String()
	}
	return a
}

// nobody is who asks where nobody is asked who they are, or is not known.
const nobody = "anonymous"

// name returns the caller's name, else what the certificate says of it.
func (a *asker) name() string {
	switch {
	case a.caller != nil && a.caller.Name != "":
		return a.caller.Name
	case a.subject != "":
		return "certificate " + a.subject
	}
	return nobody
}

// AuditMessage is the message of every line of the audit log.
const AuditMessage = "audit"

// The outcomes of an act.
const (
	AuditDone    = "done"
	AuditRefused = "refused" // who asked may not
	AuditFailed  = "failed"
)

// keyDigits is how much of a key, in hex, a line of the audit log has: enough to find it
// again by "ratelimitd key", and too little to be asked for.
const keyDigits = 16

// audit logs what a did, and what became of it. It has no identifier: of that, the first
// digits of its key.
func (s *Server) audit(ctx context.Context, a *asker, act string, about *limiter.Demand, err error, more ...slog.Attr) {
	if s.opts.Audit == nil {
		return
	}
	attrs := []slog.Attr{slog.String("act", act), slog.String("who", a.name()), slog.String("outcome", outcomeOf(err))}
	if key, unknown := s.engine.KeyOf(about.Policy, about.Identifier); unknown == nil {
		attrs = append(attrs, slog.String("policy", about.Policy), slog.String("key", hex.EncodeToString(key.Bytes())[:keyDigits]))
	}
	attrs = append(attrs, more...)
	if err != nil {
		attrs = append(attrs, slog.Int("status", problemOf(err).status))
	}
	s.opts.Audit.LogAttrs(ctx, slog.LevelInfo, AuditMessage, append(attrs, slog.String("request_id", a.requestID))...)
}

func outcomeOf(err error) string {
	if err != nil {
		return AuditFailed
	}
	return AuditDone
}

// refusals tells the first refusal of a second from the others, and counts these: who
// tries tokens must not fill the disk.
type refusals struct {
	log    failureLog
	untold atomic.Int64
}

// auditRefusal logs that r was refused with err, if it was because of who asks.
func (s *Server) auditRefusal(x *exchange, r *http.Request, err error) {
	if s.opts.Audit == nil || !errors.Is(err, auth.ErrUnauthenticated) && !errors.Is(err, auth.ErrForbidden) {
		return
	}
	if !s.refused.log.first(s.opts.Now()) {
		s.refused.untold.Add(1)
		return
	}
	a := x.askerOf(r)
	s.opts.Audit.LogAttrs(r.Context(), slog.LevelInfo, AuditMessage,
		slog.String("act", "access"), slog.String("who", a.name()), slog.String("outcome", AuditRefused),
		slog.String("route", routeOf(r)), slog.Int("status", problemOf(err).status), slog.String("reason", reasonOf(err)),
		slog.Int64("refused_before", s.refused.untold.Swap(0)), slog.String("request_id", a.requestID))
}

// reasonOf returns why a request was refused, in words that hold nothing of it.
func reasonOf(err error) string {
	for _, known := range []error{auth.ErrNoToken, auth.ErrUnknownToken, auth.ErrNotBearer} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if missing := (*scopeError)(nil); errors.As(err, &missing) {
		return missing.Error()
	}
	return auth.ErrForbidden.Error()
}
