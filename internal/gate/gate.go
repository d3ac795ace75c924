// Package gate keeps logs from growing with the load.
package gate

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"
)

// Second lets one through each second, as of what fails with every request. The zero value
// is ready, and safe for concurrent use.
type Second struct {
	last atomic.Int64 // nanoseconds since the Unix epoch; 0: none yet
}

// Open reports whether who comes at now may pass: nobody did within the second before, nor
// the second after, which a clock that was set back makes of long ago.
func (s *Second) Open(now time.Time) bool {
	last, at := s.last.Load(), now.UnixNano()
	apart := time.Duration(at - last).Abs()
	return (last == 0 || apart >= time.Second) && s.last.CompareAndSwap(last, at)
}

// Lines lets one line of a log through each second, as Second does, and counts those that it does not. The zero
// value is ready, and safe for concurrent use.
type Lines struct {
	second   Second
	unlogged atomic.Int64
}

// Pass reports whether a line may be written at now, and how many were not since the last one that was.
func (l *Lines) Pass(now time.Time) (unlogged int64, pass bool) {
	if !l.second.Open(now) {
		l.unlogged.Add(1)
		return 0, false
	}
	return l.unlogged.Swap(0), true
}

// Unlogged is the name of the attribute that has what Pass counts.
const Unlogged = "unlogged"

// Level returns how loudly a line of this level is to be logged at now: at debug, where Pass does not let it through.
// with has Unlogged, if there is anything to say of it.
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

// Statuses are Lines for each status of HTTP that says what failed. The zero value is ready, and safe for concurrent use.
type Statuses [statuses]Lines

// The statuses from 400 to 599.
const statuses = 200

// Of returns the Lines of requests with this status. A batch of which a part failed has a status below 400, and counts
// as a 503.
func (s *Statuses) Of(status int) *Lines {
	if status < http.StatusBadRequest || status >= http.StatusBadRequest+statuses {
		status = http.StatusServiceUnavailable
	}
	return &s[status-http.StatusBadRequest]
}
