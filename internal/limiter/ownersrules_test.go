package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// mute is an owner that decides, and whose answers are lost.
type mute struct{ toOwner }

func (m *mute) Decide(ctx context.Context, c *demand.Charge) error {
	_ = m.toOwner.Decide(ctx, c)
	c.Decision = count.Decision{}
	return fmt.Errorf("%w: no answer", store.ErrUnavailable)
}

// TestCallWithoutAnAnswerIsNotSentAgain holds that a take counts at most once if its owner may have decided it: it is not sent
// again, and its answer says that it is unknown whether it counts.
func TestCallWithoutAnAnswerIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, link, p := newFakeStore(), new(mute), logOf(10)
		link.engine = ownerOf(t, s, ownsAll(), limiter.Options{}, p)
		asks := ownerOf(t, s, &owners{other: link}, limiter.Options{}, p)
		_, err := takeOne(t.Context(), asks)
		if failed := (*count.StoreError)(nil); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("the error is %v, want one that says unknown", err)
		}
		if n := link.asked.Load(); n != 1 {
			t.Errorf("the owner was asked %d times, want once", n)
		}
		d, err := link.engine.Check(t.Context(), limiter.Demand{Policy: "log", Identifier: "id"})
		if err != nil || d.Used != 1 {
			t.Errorf("%d used, error %v; want 1", d.Used, err)
		}
	})
}

// TestNewOwnerReadsAgainWhatMayBeTakenBack has an owner begin while another instance is about to take back units that it
// counted before: the new owner denies no call because of these units once they are taken back.
func TestNewOwnerReadsAgainWhatMayBeTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newFakeStore(), policyOf("fixed-window", 1, 24*time.Hour)
		former := ownerOf(t, s, nil, limiter.Options{StoreTimeout: timeout}, p)
		running(t, former)
		s.set(func() {
			s.afterRead = func(*store.State) error {
				s.set(func() { s.afterRead = nil })
				return store.ErrUnavailable
			}
		})
		if _, err := former.Take(t.Context(), somebody); err == nil {
			t.Fatal("the read did not fail")
		}
		next := ownerOf(t, s, &owners{term: &sole{began: time.Now()}}, limiter.Options{StoreTimeout: timeout}, p)
		if d := mustTake(t, next); d.Allowed {
			t.Fatalf("allowed before it is taken back: %+v", d.Verdict)
		}
		roomWithin(t, next, 3*timeout)
	})
}

// TestOneTripOfAKeyIsUnderWay holds that no two writes of a key are under way: a total that comes late would stand for
// one that has more.
func TestOneTripOfAKeyIsUnderWay(t *testing.T) {
	for name, p := range map[string]policy.Policy{
		"rows": inRows("fixed-window", 100, 24*time.Hour), "log": policyOf("sliding-log", 100, time.Hour),
	} {
		bubble(t, name, func(t *testing.T) {
			s := newFakeStore()
			e := ownerOf(t, s, ownsAll(), limiter.Options{StoreTimeout: timeout}, p)
			mustTake(t, e)
			var under, most atomic.Int64
			s.set(func() {
				s.onWrite = func(*store.Write) error {
					most.Store(max(most.Load(), under.Add(1)))
					time.Sleep(10 * time.Millisecond)
					under.Add(-1)
					return nil
				}
			})
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { mustTake(t, e) })
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			if n := most.Load(); n != 1 {
				t.Errorf("%d writes of one key at the same time, want 1", n)
			}
		})
	}
}

// TestDenialDoesNotRestOnWhatIsUnderWay holds that no call is denied because of a unit whose write is not acknowledged: the
// write may fail, and then the next unit fits.
func TestDenialDoesNotRestOnWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		e := ownerOf(t, s, ownsAll(), limiter.Options{StoreTimeout: timeout}, policyOf("sliding-log", 2, time.Hour))
		mustTake(t, e)
		s.set(func() {
			s.onWrite = func(*store.Write) error {
				s.set(func() { s.onWrite = nil })
				time.Sleep(timeout / 4)
				return store.ErrNotStored
			}
		})
		var first sync.WaitGroup
		first.Go(func() {
			if _, err := e.Take(t.Context(), somebody); err == nil {
				t.Error("the write did not fail")
			}
		})
		synctest.Wait()
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("denied by a unit that is not stored: %+v", d.Verdict)
		}
		first.Wait()
	})
}
