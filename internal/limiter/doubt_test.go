package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// wantRecorded holds that err says so of what became of the units.
func wantRecorded(t *testing.T, err error, want count.Recorded) {
	t.Helper()
	var failed *count.StoreError
	if !errors.As(err, &failed) || failed.Recorded != want || errors.Is(err, store.ErrConflict) {
		t.Errorf("%v, want recorded: %s", err, want)
	}
}

// An attempt that meets its condition changed by an earlier one of its own, whose answer
// was lost, says nothing of whether it is counted.
func TestConflictWithOnesOwnLostAttemptIsUnknown(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := &serialStore{fakeStore: newFakeStore()}
		e := newEngine(t, s, 0, policyOf("token-bucket", 3, time.Hour))
		s.delay = func(*store.Write) (time.Duration, error) {
			s.delay = nil
			s.set(func() { s.afterRead = func(*store.State) error { return errLost } })
			return 0, errLost // it is stored at once
		}
		_, err := e.Take(t.Context(), somebody)
		wantRecorded(t, err, count.RecordedUnknown)
		s.all.Wait()
		s.set(func() { s.afterRead = nil })
		if got := usedBy(t, e, somebody); got != 1 {
			t.Errorf("used %d, want the one that was stored", got)
		}
	})
}

// failAdding has store fail what adds to windows, and nothing else.
func failAdding(s *fakeStore, err error) {
	s.set(func() {
		s.onWrite = func(w *store.Write) error {
			if len(w.Add) > 0 {
				return err
			}
			return nil
		}
	})
}

// A record after its reservation was over counts once: a caller that repeats a record without
// an answer is not told that it was counted.
func TestLateRecordThatFailedIsNotSaidToCount(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("fixed-window", 3, 24*time.Hour))
		running(t, e)
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: 2 * time.Second})
		time.Sleep(10 * time.Second)
		record := limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: held.Reservation}
		failAdding(store, errLost)
		_, err := e.Do(t.Context(), &record)
		wantRecorded(t, err, count.RecordedUnknown)
		store.set(func() { store.onWrite = nil })
		_, err = e.Do(t.Context(), &record)
		wantRecorded(t, err, count.RecordedUnknown)
		if got := usedBy(t, e, somebody); got != 0 {
			t.Errorf("used %d", got)
		}
	})
}

// A late record that is let through because the store failed says what became of it, and is
// counted once when it is sent again, unless it may be already.
func TestLateRecordThatIsLetThrough(t *testing.T) {
	lost := errors.Join(store.ErrUnavailable, store.ErrNotStored)
	for _, onError := range []policy.OnStoreError{policy.OnStoreErrorAllow, policy.OnStoreErrorLocal} {
		for _, test := range []struct {
			name     string
			failed   error
			recorded count.Recorded
			again    count.Recorded
			used     int64
		}{
			{"surely not stored", lost, count.RecordedNo, count.RecordedYes, 1},
			{"nobody knows", errLost, count.RecordedUnknown, count.RecordedUnknown, 0},
		} {
			bubble(t, fmt.Sprintf("%s, %s", onError, test.name), func(t *testing.T) {
				store := newFakeStore()
				policy := policyOf("fixed-window", 3, 24*time.Hour)
				policy.OnStoreError = onError
				e := newEngine(t, store, 0, policy)
				running(t, e)
				held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: 2 * time.Second})
				time.Sleep(10 * time.Second)
				record := limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: held.Reservation}
				failAdding(store, test.failed)
				if d := mustDo(t, e, record); !d.Allowed || !d.Degraded || d.Recorded != test.recorded || d.Receipt != "" {
					t.Errorf("%+v, want it let through, and recorded: %s", d, test.recorded)
				}
				store.set(func() { store.onWrite = nil })
				for range 2 {
					if d := mustDo(t, e, record); d.Recorded != test.again {
						t.Errorf("sent again, recorded: %s, want %s", d.Recorded, test.again)
					}
				}
				if got := usedBy(t, e, somebody); got != test.used {
					t.Errorf("used %d, want %d", got, test.used)
				}
			})
		}
	}
}

// Of a late record of several demands that counted in part, each says what became of it, and
// nobody can send it again: what counted would count twice. If it can't be told where that
// leaves the callers, one word has to do for all.
func TestLateRecordThatCountedInPart(t *testing.T) {
	late := func(t *testing.T, afterRead func(*store.State) error) (*limiter.Engine, *fakeStore, limiter.Call) {
		s := newFakeStore()
		policies := twoPolicies(limitOf("fixed-window", 5), limitOf("sliding-log", 5))
		policies[1].OnStoreError = policy.OnStoreErrorAllow
		e := newEngine(t, s, 0, policies...)
		running(t, e)
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: both, Reserve: 2 * time.Second})
		time.Sleep(10 * time.Second)
		record := limiter.Call{Op: count.OpRecord, Demands: both, Reservation: held.Reservation}
		s.set(func() {
			s.onWrite = func(w *store.Write) error {
				if len(w.Events) > 0 {
					return errors.Join(store.ErrUnavailable, store.ErrNotStored)
				}
				return nil
			}
			s.afterRead = afterRead
		})
		return e, s, record
	}
	bubble(t, "told", func(t *testing.T) {
		e, store, record := late(t, nil)
		answer := mustDo(t, e, record)
		if p, q := answer.Demands[0].Recorded, answer.Demands[1].Recorded; p != count.RecordedYes || q != count.RecordedNo {
			t.Errorf("recorded: %s and %s, want yes and no", p, q)
		}
		store.set(func() { store.onWrite = nil })
		_, err := e.Do(t.Context(), &record)
		wantRecorded(t, err, count.RecordedUnknown)
		if p, q := usedBy(t, e, both[0]), usedBy(t, e, both[1]); p != 1 || q != 0 {
			t.Errorf("used %d and %d, want 1 and 0", p, q)
		}
	})
	bubble(t, "not told", func(t *testing.T) {
		var reads atomic.Int64
		e, _, record := late(t, func(s *store.State) error {
			if len(s.Counts) > 0 && reads.Add(1) > 1 { // the first is of the record
				return errLost
			}
			return nil
		})
		_, err := e.Do(t.Context(), &record)
		wantRecorded(t, err, count.RecordedUnknown)
		if reads.Load() < 2 {
			t.Error("nobody asked where that leaves them")
		}
	})
}

// A record whose state can't be read is not said to count: a reset may have forgotten it,
// that of an instance whose clock is ahead, or, in windows, any that this one has not
// heard of.
func TestRecordUnderAResetThatWasNotRead(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		for _, counting := range []policy.Counting{policy.CountingCounters, policy.CountingRows} {
			bubble(t, fmt.Sprintf("%s in %s", algorithm, counting), func(t *testing.T) {
				s := newFakeStore()
				policy := policyOf(algorithm, 3, 24*time.Hour)
				policy.Counting = counting
				fast, slow := newEngine(t, s, tolerance, policy), newEngine(t, s, -tolerance, policy)
				mustTake(t, slow)
				mustReset(t, fast)
				s.set(func() { s.afterRead = func(*store.State) error { return errLost } })
				_, err := slow.Record(t.Context(), somebody)
				wantRecorded(t, err, count.RecordedUnknown)
				s.set(func() { s.afterRead = nil })
				if got := used(t, fast, somebody); got != 0 {
					t.Errorf("used %d, want none: then it may be said to count", got)
				}
			})
		}
	}
}

// A reservation that was settled is recorded, whether or not it can be told where that
// leaves the caller.
func TestSettledAndNotRead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		in := newFakeStore()
		e := newEngine(t, in, 0, policyOf("sliding-log", 3, time.Hour))
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: 2 * time.Second})
		in.set(func() {
			in.afterRead = func(s *store.State) error {
				if len(s.Logs) > 0 {
					return errLost
				}
				return nil
			}
		})
		_, err := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: held.Reservation})
		wantRecorded(t, err, count.RecordedYes)
	})
}

// A late record takes no longer than any other call, however long it waited before.
func TestLateRecordEndsInTime(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := newEngine(t, s, 0, policyOf("fixed-window", 3, 24*time.Hour))
		running(t, e)
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: 2 * time.Second})
		time.Sleep(10 * time.Second)
		var adding atomic.Bool
		s.set(func() {
			s.readTakes, s.writeTakes = timeout/10, timeout/10
			s.onWrite = func(w *store.Write) error {
				if len(w.Add) > 0 {
					adding.Store(true)
					time.Sleep(timeout * 6 / 10)
				}
				return nil
			}
		})
		began := time.Now()
		_, _ = e.Do(context.Background(), &limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: held.Reservation})
		if took := time.Since(began); !adding.Load() || took > timeout*12/10 {
			t.Errorf("it took %v", took)
		}
	})
}

// An instance that has just started does not know yet what a reservation is for. While
// the store does not answer it can't say, and says so.
func TestReservationThatCannotBeOpened(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		p := policyOf("sliding-log", 3, time.Hour)
		p.OnStoreError = policy.OnStoreErrorAllow // which nobody can know to apply
		made := newEngine(t, s, 0, p)
		held := mustDo(t, made, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute})
		started := newEngine(t, s, 0, p)
		settle := limiter.Call{Op: count.OpRecord, Reservation: held.Reservation}
		s.afterRead = func(*store.State) error { return store.ErrUnavailable }
		_, err := started.Do(t.Context(), &settle)
		var failed *count.StoreError
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%v, want that it is not known what is recorded", err)
		}
		s.afterRead = nil
		if a := mustDo(t, started, settle); a.Used != 1 || a.Recorded != count.RecordedYes {
			t.Errorf("%+v once the store is back", a.Verdict)
		}
	})
}
