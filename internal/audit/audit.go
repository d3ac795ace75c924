// Package audit writes what administrators do, who is refused and what is reloaded: a line
// of a structured log for each.
//
// It is given names of callers and policies, and the first digits of hashed keys. It does
// not know identifiers, so that there are none in its lines.
package audit

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/gate"
)

// Message is the message of every line.
const Message = "audit"

// Anonymous is who asks where nobody is asked who they are, or where that is not known.
const Anonymous = "anonymous"

// The outcomes.
const (
	done    = "done"
	failed  = "failed"
	refused = "refused" // who asks may not
)

// Log writes lines. It is safe for concurrent use; make one with New.
type Log struct {
	log    *slog.Logger
	now    func() time.Time
	gate   gate.Second  // of refusals: who tries tokens must not fill the disk
	untold atomic.Int64 // refusals since
}

// New returns a Log that writes by log, and goes by now to tell one second from another.
func New(log *slog.Logger, now func() time.Time) *Log { return &Log{log: log, now: now} }

// Act is something that somebody did.
type Act struct {
	Name      string // what: "override.set"
	Who       string // a caller's name; empty: Anonymous
	Failed    bool
	Policy    string // that it is about; empty: none that is in force
	Key       string // the first digits of the hashed key that it is about; empty: none
	RequestID string // empty: it was no request
	More      []slog.Attr
}

// Did writes a.
func (l *Log) Did(ctx context.Context, a *Act) {
	outcome := done
	if a.Failed {
		outcome = failed
	}
	attrs := []slog.Attr{slog.String("act", a.Name), slog.String("who", cmp.Or(a.Who, Anonymous)), slog.String("outcome", outcome)}
	if a.Policy != "" {
		attrs = append(attrs, slog.String("policy", a.Policy), slog.String("key", a.Key))
	}
	attrs = append(attrs, a.More...)
	if a.RequestID != "" {
		attrs = append(attrs, slog.String("request_id", a.RequestID))
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, Message, attrs...)
}

// Refusal is a request that was refused because of who asks.
type Refusal struct {
	Who       string // a caller's name; empty: Anonymous
	Where     string // the route, never a path
	Reason    string // in words that hold nothing of the request
	RequestID string // empty: it has none
}

// Refused writes r, if none was written within a second, and how many were not before.
func (l *Log) Refused(ctx context.Context, r *Refusal) {
	if !l.gate.Open(l.now()) {
		l.untold.Add(1)
		return
	}
	attrs := []slog.Attr{
		slog.String("act", "access"), slog.String("who", cmp.Or(r.Who, Anonymous)), slog.String("outcome", refused),
		slog.String("route", r.Where), slog.String("reason", r.Reason), slog.Int64("refused_before", l.untold.Swap(0)),
	}
	if r.RequestID != "" {
		attrs = append(attrs, slog.String("request_id", r.RequestID))
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, Message, attrs...)
}
