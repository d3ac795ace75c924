package clock

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// The clock says what the system's says, to the microsecond, however many ask, and however
// often.
func TestClockIsTheSystems(t *testing.T) {
	var timing Timing
	c := &timing.system
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 20_000 {
				before := time.Now().Add(-readWithin)
				now, instant := c.now(), timing.Instant()
				after := time.Now().Add(readWithin)
				if now.Before(before) || now.After(after) || instant < store.InstantOf(before) || instant > store.InstantOf(after) {
					t.Errorf("%v and %v between %v and %v", now, instant.Time(), before, after)
					return
				}
			}
		})
	}
	all.Wait()
}

// A clock that is set is in use a millisecond later.
func TestClockThatIsSetIsGoneBySoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var timing Timing
		c := &timing.system
		now := time.Now()
		c.last.Store(&reading{at: now, nanos: now.Add(time.Hour).UnixNano()}) // as if it had been an hour ahead until now
		time.Sleep(readEvery - time.Microsecond)
		if got := timing.Instant(); got != store.InstantOf(time.Now().Add(time.Hour)) {
			t.Errorf("%v: want what was read", got.Time())
		}
		time.Sleep(time.Microsecond)
		if got, at := timing.Instant(), c.now(); got != store.InstantOf(time.Now()) || !at.Equal(time.Now()) {
			t.Errorf("%v and %v: want what the system's clock says now", got.Time(), at)
		}
	})
}
