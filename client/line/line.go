// Package line lets callers wait for room in a limit. The callers of one key take turns, and one of them asks at a
// time. The package does not know what they ask. It is shared with package inprocess, and may change in any release.
package line

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Reasons why a caller does not wait any longer.
var (
	ErrNoRoom = errors.New("there is no room in time")             // by the caller's deadline, or ever
	ErrFull   = fmt.Errorf("%w: too many wait already", ErrNoRoom) // the line has its maximum length
)

// DefaultMax is the maximum number of callers that wait for one key: far more than a window has room for, and about 100
// KB.
const DefaultMax = 1000

// never is a wait without an end.
const never = time.Duration(math.MaxInt64)

// Bounds of pauses.
const (
	minPause  = 10 * time.Millisecond // after a denial without a wait: two callers met at the limit
	maxJitter = time.Second           // spreads the callers of several processes
)

// Lines has the waiting callers. The zero value is ready. It is safe for concurrent use.
type Lines struct {
	Max int // the most callers of one key, including the one that asks; 0: DefaultMax

	mu    sync.Mutex
	lines map[string]*line
}

// line has the callers of one key.
type line struct {
	callers []*caller // the first one asks
	until   time.Time // there is no room before, as far as is known
}

type caller struct {
	deadline time.Time     // zero: it has none
	turn     chan struct{} // closed once it is first, or known to be late
	late     bool          // there is no room before its deadline
}

// Do calls ask, in turn among the callers of key, until ask reports that it is done. ask returns the wait before the
// next time. The error is ErrNoRoom as soon as it is known that this is after ctx's deadline, ErrFull, or ctx's own.
func (l *Lines) Do(ctx context.Context, key string, ask func() (wait time.Duration, done bool)) error {
	c, err := l.enter(ctx, key)
	if err != nil {
		return err
	}
	defer l.leave(key, c)
	select {
	case <-c.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.late {
		return ErrNoRoom
	}
	for {
		wait, done := ask()
		if done {
			return nil
		}
		if err := l.pause(ctx, key, c, wait); err != nil {
			return err
		}
	}
}

// enter adds a caller at the end of the line.
func (l *Lines) enter(ctx context.Context, key string) (*caller, error) {
	c := &caller{turn: make(chan struct{})}
	c.deadline, _ = ctx.Deadline()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = make(map[string]*line)
	}
	at := l.lines[key]
	switch {
	case at == nil:
		at = new(line)
		l.lines[key] = at
	case c.before(at.until):
		return nil, ErrNoRoom
	case len(at.callers) >= cmp.Or(l.Max, DefaultMax):
		return nil, ErrFull
	}
	at.callers = append(at.callers, c)
	if len(at.callers) == 1 {
		close(c.turn)
	}
	return c, nil
}

// before reports whether c's deadline is before t.
func (c *caller) before(t time.Time) bool { return !c.deadline.IsZero() && c.deadline.Before(t) }

// leave removes c from the line. If c was first, the next caller asks.
func (l *Lines) leave(key string, c *caller) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.lines[key]
	i := slices.Index(at.callers, c)
	if i < 0 {
		return // c was late
	}
	at.callers = slices.Delete(at.callers, i, i+1)
	switch {
	case len(at.callers) == 0:
		delete(l.lines, key)
	case i == 0:
		at.until = time.Time{}
		close(at.callers[0].turn)
	}
}

// pause waits, and a bit longer by chance, but not past ctx's deadline. It ends the wait of callers whose deadline is
// sooner.
func (l *Lines) pause(ctx context.Context, key string, c *caller, wait time.Duration) error {
	if wait == never {
		return ErrNoRoom
	}
	wait = max(wait, minPause)
	now := time.Now()
	until := now.Add(wait)
	if c.before(until) {
		return ErrNoRoom
	}
	jitter := min(wait/10, maxJitter)
	if !c.deadline.IsZero() {
		jitter = min(jitter, c.deadline.Sub(until)/2)
	}
	l.tell(key, until)
	timer := time.NewTimer(wait + rand.N(jitter+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell wakes the callers behind the first whose deadline is before until: they are late.
func (l *Lines) tell(key string, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.lines[key]
	at.until = until
	first, behind := at.callers[:1], at.callers[1:]
	behind = slices.DeleteFunc(behind, func(c *caller) bool {
		if c.late = c.before(until); c.late {
			close(c.turn)
		}
		return c.late
	})
	at.callers = at.callers[:len(first)+len(behind)]
}

// Key returns the same string for demands of the same policies and identifiers, whatever their order and costs.
func Key[D any](demands []D, of func(D) (policy, identifier string)) string {
	parts := make([]string, len(demands))
	for i, d := range demands {
		policy, identifier := of(d)
		parts[i] = strconv.Quote(policy) + strconv.Quote(identifier)
	}
	slices.Sort(parts)
	return strings.Join(parts, "")
}
