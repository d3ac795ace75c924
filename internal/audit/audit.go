// Package audit logs the actions of administrators, refusals and reloads, each as a line of a structured log.
//
// It gets names of callers and policies, and the first digits of hashed keys, but no identifiers, so that its lines
// have none.
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

// Anonymous is the name of an unknown caller, and of all callers without authentication.
const Anonymous = "anonymous"

// The outcomes.
const (
	done    = "done"
	failed  = "failed"
	refused = "refused" // the caller has no permission
)

// Log writes lines. It is safe for concurrent use; make one with New.
type Log struct {
	log *slog.Logger
	now func() time.Time

	mu     sync.Mutex
	began  time.Time             // the second of told
	told   map[refusals]struct{} // refusals with a line in this second
	untold int64                 // refusals without a line since the last line
}

// refusals are equal refusals, which have one line a second, so that a client that tries tokens neither fills the disk
// nor hides the refusals of another.
type refusals struct{ who, where, reason string }

// maxTold is the maximum of lines in a second, more than the routes and reasons of a few callers.
const maxTold = 1000

// New returns a Log that writes to log, and uses the clock now.
func New(log *slog.Logger, now func() time.Time) *Log {
	return &Log{log: log, now: now, told: make(map[refusals]struct{})}
}

// Act is an action to log.
type Act struct {
	Name      string // such as "override.set"
	Who       string // a caller's name; empty: Anonymous
	Failed    bool
	Policy    string // of the action; empty: none that is in force
	Key       string // the first digits of the hashed key; empty: none
	RequestID string // empty: it was not a request
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
	Reason    string // without parts of the request
	RequestID string // empty: it has none
}

// Refused writes r with the number of refusals that were left out before, unless one with the same caller, route and
// reason was written within the second.
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

// tell reports whether to write a refusal, and the number of those that were left out before.
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
