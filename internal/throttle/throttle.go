// Package throttle bounds the number of log lines under load.
package throttle

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Second allows one event a second. The zero value is ready to use, and safe for concurrent use.
type Second struct {
	last atomic.Int64 // nanoseconds since the Unix epoch; 0: none yet
}

// Allow reports whether an event may happen at now, which is at least a second after the last allowed one, or before it
// by as much, if the clock was set back.
func (s *Second) Allow(now time.Time) bool {
	last, at := s.last.Load(), now.UnixNano()
	apart := time.Duration(at - last).Abs()
	return (last == 0 || apart >= time.Second) && s.last.CompareAndSwap(last, at)
}

// Lines allows one log line a second, and counts the others. The zero value is ready to use, and safe for concurrent
// use.
type Lines struct {
	second   Second
	unlogged atomic.Int64
}

// Pass reports whether a line may be logged at now, and the number of lines that were left out before.
func (l *Lines) Pass(now time.Time) (unlogged int64, pass bool) {
	if !l.second.Allow(now) {
		l.unlogged.Add(1)
		return 0, false
	}
	return l.unlogged.Swap(0), true
}

// Unlogged is the name of the attribute with the number that Pass returns.
const Unlogged = "unlogged"

// Panic logs the cause of a recovered panic with its stack, if Pass allows a line at now.
func (l *Lines) Panic(ctx context.Context, log *slog.Logger, where string, cause any, now time.Time) {
	if unlogged, pass := l.Pass(now); pass {
		log.ErrorContext(ctx, where, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()), Unlogged, unlogged)
	}
}

// Level returns the level at which to log a line of this level at now: debug if Pass does not allow it. If lines were
// left out before, with has their number under Unlogged.
func (l *Lines) Level(level slog.Level, now time.Time) (at slog.Level, with []slog.Attr) {
	if level <= slog.LevelDebug {
		return level, nil
	}
	unlogged, pass := l.Pass(now)
	switch {
	case !pass:
		return slog.LevelDebug, nil
	case unlogged > 0:
		return level, []slog.Attr{slog.Int64(Unlogged, unlogged)}
	}
	return level, nil
}

// Statuses has Lines for each HTTP status of an error. The zero value is ready to use, and safe for concurrent use.
type Statuses [statuses]Lines

// The statuses from 400 to 599.
const statuses = 200

// Of returns the Lines of requests with this status. A status below 400, of a batch that failed in part, counts as a 503.
func (s *Statuses) Of(status int) *Lines {
	if status < http.StatusBadRequest || status >= http.StatusBadRequest+statuses {
		status = http.StatusServiceUnavailable
	}
	return &s[status-http.StatusBadRequest]
}
