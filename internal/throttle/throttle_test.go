package throttle_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/throttle"
)

func TestSecond(t *testing.T) {
	var s throttle.Second
	start := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at      time.Duration
		allowed bool
	}{
		{0, true},
		{0, false},
		{time.Second - 1, false},
		{-time.Millisecond, false}, // of a goroutine that read the clock a little earlier
		{time.Second, true},
		{time.Second + 1, false},
		{-time.Hour, true}, // the clock was set back
		{-time.Hour + time.Millisecond, false},
		{-time.Hour + time.Second, true},
	} {
		if got := s.Allow(start.Add(c.at)); got != c.allowed {
			t.Errorf("at %v: allowed is %v", c.at, got)
		}
	}
}

// Of many at once, one passes.
func TestSecondOfMany(t *testing.T) {
	var s throttle.Second
	var passed atomic.Int64
	var all sync.WaitGroup
	now := time.Now()
	for i := range 64 {
		all.Go(func() {
			if s.Allow(now.Add(time.Duration(i))) {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if got := passed.Load(); got != 1 {
		t.Errorf("%d passed", got)
	}
}

// TestLinesCount holds that a line says how many there were without one.
func TestLinesCount(t *testing.T) {
	var l throttle.Lines
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	for second, lines := range []int64{1, 5, 1, 1} {
		for i := range lines {
			unlogged, pass := l.Pass(now.Add(time.Duration(second) * time.Second))
			want := int64(0)
			if i == 0 && second == 2 {
				want = 4
			}
			if pass != (i == 0) || unlogged != want {
				t.Errorf("line %d of second %d: passes %v after %d without, want %v after %d", i, second, pass, unlogged, i == 0, want)
			}
		}
	}
}
