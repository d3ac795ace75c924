package line_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client/line"
)

// TestFirstComeFirstServed has three callers wait for room that comes each minute: they get it in turn, and one
// asks at a time.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line.Lines
		var mu sync.Mutex
		var got []int
		asking, room := 0, time.Now().Add(time.Minute)
		for i := range 3 {
			go func() {
				err := l.Do(t.Context(), "a", func() (time.Duration, bool) {
					mu.Lock()
					defer mu.Unlock()
					if asking++; asking > 6 {
						t.Error("they ask again and again")
					}
					if wait := time.Until(room); wait > 0 {
						return wait, false
					}
					room = time.Now().Add(time.Minute)
					got = append(got, i)
					return 0, true
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if !slices.Equal(got, []int{0, 1, 2}) {
			t.Errorf("served in the order %v", got)
		}
	})
}

// TestDeadlinesThatCannotBeMet fail at once: of the first, of those behind it, and of those that come.
func TestDeadlinesThatCannotBeMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l line.Lines
		began := time.Now()
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		asks := make(chan bool)
		ended := make(chan error, 3)
		go func() {
			ended <- l.Do(within(3*time.Minute), "a", func() (time.Duration, bool) { return time.Minute, <-asks })
		}()
		synctest.Wait()
		go func() {
			ended <- l.Do(within(30*time.Second), "a", func() (time.Duration, bool) { t.Error("it asks"); return 0, true })
		}()
		synctest.Wait()
		asks <- false // a minute
		if err := <-ended; !errors.Is(err, line.ErrNoRoom) {
			t.Errorf("behind the first: %v", err)
		}
		err := l.Do(within(50*time.Second), "a", func() (time.Duration, bool) { t.Error("it asks"); return 0, true })
		if !errors.Is(err, line.ErrNoRoom) {
			t.Errorf("one that comes: %v", err)
		}
		if err := l.Do(within(30*time.Second), "b", func() (time.Duration, bool) { return time.Minute, false }); !errors.Is(err, line.ErrNoRoom) {
			t.Errorf("the first: %v", err)
		}
		if err := l.Do(t.Context(), "b", func() (time.Duration, bool) { return 1<<63 - 1, false }); !errors.Is(err, line.ErrNoRoom) {
			t.Errorf("one that no wait helps: %v", err)
		}
		if passed := time.Since(began); passed != 0 {
			t.Errorf("%v have passed", passed)
		}
		asks <- true
		if err := <-ended; err != nil || time.Since(began) > 66*time.Second {
			t.Errorf("the first of the line: %v after %v", err, time.Since(began))
		}
	})
}

// TestCancelledCallersLeave the line to others, and a line is bounded.
func TestCancelledCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := line.Lines{Max: 3}
		never := func() (time.Duration, bool) { return time.Hour, false }
		ended := make(chan error)
		var cancels []context.CancelFunc
		enter := func(ask func() (time.Duration, bool)) {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			go func() { ended <- l.Do(ctx, "a", ask) }()
			synctest.Wait()
		}
		enter(never)
		enter(never)
		enter(func() (time.Duration, bool) { return 0, true })
		if err := l.Do(t.Context(), "a", never); !errors.Is(err, line.ErrFull) {
			t.Errorf("the fourth: %v", err)
		}
		cancels[1]()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the second: %v", err)
		}
		cancels[0]()
		if a, b := <-ended, <-ended; !errors.Is(errors.Join(a, b), context.Canceled) || a != nil && b != nil {
			t.Errorf("the first and the third: %v, %v", a, b)
		}
		cancels[2]()
	})
}
