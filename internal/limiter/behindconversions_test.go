package limiter_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// halfInMemory is inMemory of a conversion of which half has to be confirmed.
func halfInMemory(limit int64, window time.Duration) policy.Policy {
	p := inMemory("conversion", limit, window)
	p.Limits[0].MinConversion = 50
	return p
}

// unconfirmedOf returns what is used under halfInMemory.
func unconfirmedOf(sent, confirmed, limit int64) int64 {
	return max(0, sent-max(0, 2*confirmed+1-limit))
}

// sent takes for d, and returns the receipt; empty: it is denied.
func sent(t testing.TB, e *limiter.Engine, d limiter.Demand) string {
	t.Helper()
	a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}})
	if err != nil {
		t.Fatal(err)
	}
	return a.Receipt
}

func mustConfirm(t testing.TB, e *limiter.Engine, receipt string, replayed bool) {
	t.Helper()
	if got, err := e.Confirm(t.Context(), receipt); err != nil || !got.Confirmed || got.Replayed != replayed {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestLocalConfirmsGoToTheOwner checks that units that are confirmed and refunded anywhere make room at once at the
// owner, which reads nothing anew for it, and that this is in the store an interval later, once: however many there
// are.
func TestLocalConfirmsGoToTheOwner(t *testing.T) {
	const limit, confirmed = 100, 80
	inBubble(t, func(t *testing.T) {
		store, feed, p := newFakeStore(), newFakeFeed(), halfInMemory(limit, 24*time.Hour)
		owner := tenant(t, store, feed, &tenancy{}, p)
		other := asker(t, store, feed, owner, p)
		var receipts []string
		for range limit {
			receipts = append(receipts, sent(t, other, somebody))
		}
		if sent(t, other, somebody) != "" {
			t.Error("one more is allowed")
		}
		nextSync()
		cold := owner.ColdReads()
		for i := range confirmed {
			time.Sleep(time.Millisecond)
			mustConfirm(t, other, receipts[i], false)
		}
		mustConfirm(t, other, receipts[0], true)
		if used, want := mustCheck(t, owner).Used, unconfirmedOf(limit, confirmed, limit); used != want {
			t.Errorf("%d used at the owner, want %d", used, want)
		}
		last := receipts[limit-1]
		if err := other.Refund(t.Context(), last); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second) // news are heard, and all is written
		want := unconfirmedOf(limit-1, confirmed, limit)
		if used := mustCheck(t, owner).Used; used != want || owner.ColdReads() != cold {
			t.Errorf("%d used in the end, want %d, after %d reads", used, want, owner.ColdReads()-cold)
		}
		if used := mustCheck(t, instance(t, store, nil, p)).Used; used != want {
			t.Errorf("%d used in the store, want %d", used, want)
		}
	})
}

// TestLocalConfirmsOfOneMoment holds that all confirmations of one key that come within a store timeout count, in memory and
// in the store, though the cell names few receipts.
func TestLocalConfirmsOfOneMoment(t *testing.T) {
	const calls = 300
	inBubble(t, func(t *testing.T) {
		store, feed, p := newFakeStore(), newFakeFeed(), halfInMemory(calls, 24*time.Hour)
		owner := tenant(t, store, feed, &tenancy{}, p)
		other := asker(t, store, feed, owner, p)
		var receipts []string
		for range calls {
			receipts = append(receipts, sent(t, other, somebody))
		}
		nextSync()
		store.set(func() { store.readTakes, store.writeTakes = 20*time.Millisecond, 20*time.Millisecond })
		var all sync.WaitGroup
		for i, r := range receipts {
			all.Go(func() {
				time.Sleep(time.Duration(i%50) * time.Millisecond)
				mustConfirm(t, other, r, false)
			})
		}
		all.Wait()
		want := unconfirmedOf(calls, calls, calls)
		if used := mustCheck(t, owner).Used; used != want {
			t.Errorf("%d used at the owner, want %d", used, want)
		}
		time.Sleep(2 * time.Second) // all is written
		if used := mustCheck(t, instance(t, store, nil, p)).Used; used != want {
			t.Errorf("%d used in the store, want %d", used, want)
		}
	})
}

// TestLocalProbesAreWrittenBehind holds that a probe is one for all its readers, too: there is none before its time,
// and one that is refunded may be sent anew.
func TestLocalProbesAreWrittenBehind(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store, p := newFakeStore(), halfInMemory(1, 24*time.Hour)
		p.Limits[0].Probe = 10 * time.Minute
		term := &tenancy{}
		e := tenant(t, store, nil, term, p)
		sent(t, e, somebody)
		time.Sleep(10 * time.Minute)
		probe := sent(t, e, somebody)
		if probe == "" || sent(t, e, somebody) != "" {
			t.Fatal("there is not just one probe")
		}
		nextSync()
		next := tenant(t, store, nil, term, p)
		if sent(t, next, somebody) != "" {
			t.Error("the next owner lets another one pass")
		}
		if err := next.Refund(t.Context(), probe); err != nil {
			t.Fatal(err)
		}
		if sent(t, next, somebody) == "" {
			t.Error("what was refunded is not sent anew")
		}
	})
}

// TestLocalConversionsAreCountedOnce is TestLocalBucketsAreFilledOnce for what is sent, confirmed and refunded.
func TestLocalConversionsAreCountedOnce(t *testing.T) {
	const callers, limit = 12, 20
	inBubble(t, func(t *testing.T) {
		store, p := newFakeStore(), halfInMemory(limit, 31*24*time.Hour)
		engines := []*limiter.Engine{tenant(t, store, nil, &tenancy{}, p), tenant(t, store, nil, &tenancy{}, p)}
		rnd := rand.New(rand.NewPCG(1, 2))
		var sent, confirmed [callers]int64
		open := make([][]string, callers)
		var tried [callers][]string // to be confirmed until it is
		store.readTakes, store.writeTakes = 20*time.Millisecond, 20*time.Millisecond
		recovers := stall(store, 650*time.Millisecond, 1013*time.Millisecond)
		for turn := range 30 * 20 {
			i := rnd.IntN(callers)
			e := engines[i%2]
			if n := len(open[i]); n > 0 && rnd.IntN(2) == 0 {
				tried[i], open[i] = append(tried[i], open[i][n-1]), open[i][:n-1]
				_, _ = e.Confirm(t.Context(), tried[i][len(tried[i])-1])
			} else if a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{caller(i)}}); err == nil && a.Allowed {
				sent[i]++
				if a.Receipt != "" {
					open[i] = append(open[i], a.Receipt)
				}
			}
			if turn == 300 {
				engines[0].Flush(t.Context())
				engines[1].Flush(t.Context())
				slices.Reverse(engines)
			}
			time.Sleep(20 * time.Millisecond)
		}
		recovers()
		for i := range callers {
			for _, receipt := range tried[i] {
				if _, err := engines[i%2].Confirm(t.Context(), receipt); err != nil {
					t.Error(err)
				}
				confirmed[i]++
			}
		}
		time.Sleep(2 * time.Second)
		after := instance(t, store, nil, p)
		for i := range callers {
			if got, want := used(t, after, caller(i)), unconfirmedOf(sent[i], confirmed[i], limit); got != want {
				t.Errorf("caller %d: %d used, want %d: %d sent, %d confirmed", i, got, want, sent[i], confirmed[i])
			}
		}
	})
}
