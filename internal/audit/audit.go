// Package audit writes the actions of administrators, refusals and reloads: a line
// of a structured log for each.
//
// It is given names of callers and policies, and the first digits of hashed keys. It does
// not know identifiers, so that there are none in its lines.
package audit

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// Message is the message of every line.
const Message = "audit"

// Anonymous is the caller where there is no authentication, or where the caller is not known.
const Anonymous = "anonymous"

// The outcomes.
const (
	done    = "done"
	failed  = "failed"
	refused = "refused" // who asks may not
)

// Log writes lines. It is safe for concurrent use; make one with New.
type Log struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	began  time.Time             // of the second that told is about
	told   map[refusals]struct{} // that have their line of this second
	untold int64                 // refusals without a line since the last one that has one
}

// refusals are those that tell the same: they share a line a second, so that a client that tries tokens neither fills
// the disk nor hides refusals of another.
type refusals struct{ who, where, reason string }

// maxTold is how many refusals have a line of their own within a second: more than routes
// and reasons make of a few callers.
const maxTold = 1000

// New returns a Log that writes by log, and goes by now to tell one second from another.
func New(log *slog.Logger, now func() time.Time) *Log {
	return &Log{log: log, now: now, told: make(map[refusals]struct{})}
}

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
		attrs = append(attrs, slog.String("policy", a.Policy))
	}
	if a.Key != "" {
		attrs = append(attrs, slog.String("key", a.Key))
	}
	attrs = append(attrs, a.More...)
	if a.RequestID != "" {
		attrs = append(attrs, slog.String("request_id", a.RequestID))
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, Message, attrs...)
}

// Refusal is a request that was refused because of its caller.
type Refusal struct {
	Who       string // a caller's name; empty: Anonymous
	Where     string // the route, never a path
	Reason    string // in words that hold nothing of the request
	RequestID string // empty: it has none
}

// Refused writes r, if none of the same caller, route and reason was written within the second,
// and how many refusals of all were not before.
func (l *Log) Refused(ctx context.Context, r *Refusal) {
	before, tell := l.tell(refusals{r.Who, r.Where, r.Reason})
	if !tell {
		return
	}
	attrs := []slog.Attr{
		slog.String("act", "access"), slog.String("who", cmp.Or(r.Who, Anonymous)), slog.String("outcome", refused),
		slog.String("route", r.Where), slog.String("reason", r.Reason), slog.Int64("refused_before", before),
	}
	if r.RequestID != "" {
		attrs = append(attrs, slog.String("request_id", r.RequestID))
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, Message, attrs...)
}

// tell reports whether a refusal is to be written, with how many were not before.
func (l *Log) tell(of refusals) (before int64, tell bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.began) >= time.Second || now.Before(l.began) {
		l.began = now
		clear(l.told)
	}
	if _, told := l.told[of]; told || len(l.told) >= maxTold {
		l.untold++
		return 0, false
	}
	l.told[of] = struct{}{}
	before, l.untold = l.untold, 0
	return before, true
}
