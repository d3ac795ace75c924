package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/race"
)

// dying is a store as one process has it, which dies after some writes.
type dying struct {
	*fakeStore

	mu   sync.Mutex
	left int // writes until then
}

func (d *dying) write() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left--; d.left < 0 {
		return store.ErrUnavailable
	}
	return nil
}

func (d *dying) Write(ctx context.Context, w *store.Write) error {
	if err := d.write(); err != nil {
		return err
	}
	return d.fakeStore.Write(ctx, w)
}

func (d *dying) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, d, w, wrote)
}

func (d *dying) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, d, w, q)
}

// eachWay are manyCounts, and those that an owner writes behind.
func eachWay(limit int64) map[string]policy.Policy {
	all := manyCounts(limit, 24*time.Hour)
	for _, algorithm := range policy.Algorithms() {
		p := policyOf(algorithm, limit, 24*time.Hour)
		p.Guarantee = policy.GuaranteeLocal
		if len(p.Problems()) == 0 {
			all[algorithm+", local"] = p
		}
	}
	return all
}

// A settlement whose process dies after each of its writes is finished by its repetition elsewhere, at the cost that was
// said first, if anything was. In counters what could not be subtracted stays; of what was being recorded beside it nobody
// can tell.
func TestRepetitionFinishesASettlement(t *testing.T) {
	const held = 40
	costs := []int64{13, 60, limiter.CostNothing}
	if race.Enabled {
		costs = costs[:1]
	}
	for name, p := range eachWay(100) {
		for _, cost := range costs {
			bubble(t, fmt.Sprintf("%s at %d", name, cost), func(t *testing.T) {
				for writes := range 12 {
					shared := newFakeStore()
					feed := embedded.New(nil)
					opts := limiter.Options{StoreTimeout: timeout, Feed: feed, ClockTolerance: tolerance}
					mine := &dying{fakeStore: shared, left: 1 << 20}
					e, other := ownerOf(t, mine, nil, opts, p), ownerOf(t, shared, nil, opts, p)
					running(t, other)
					check := limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute}
					check.Demands[0].Cost = held
					reservation := mustDo(t, e, check).Reservation
					time.Sleep(10 * timeout) // old enough to be subtracted from at once
					mine.left = writes
					_, first := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Reservation: reservation, Cost: cost})
					again := limiter.Call{Op: count.OpRecord, Reservation: reservation, Cost: 7}
					answer, err := other.Do(t.Context(), &again)
					if err != nil {
						if failed := (*count.StoreError)(nil); cost != 60 || !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
							t.Fatalf("after %d writes: %v, and first %v", writes, err, first)
						}
						continue
					}
					settled, want := answer.Settled[0].Cost, max(0, cost)
					if settled != want && (settled != 7 || first == nil) {
						t.Fatalf("after %d writes: settled at %d, want %d: %v", writes, settled, want, first)
					}
					time.Sleep(4 * timeout)
					d, err := other.Check(t.Context(), limiter.Demand{Policy: somebody.Policy, Identifier: somebody.Identifier})
					charged := first != nil && d.Used == max(settled, held) // what could not be subtracted
					sums := !p.Limits[0].InCell() && p.Limits[0].Algorithm != "sliding-log"
					if err != nil || d.Used != settled && (!sums || !charged) {
						t.Fatalf("after %d writes: used %d, settled at %d: %v, %v", writes, d.Used, settled, first, err)
					}
					if first == nil && settled == want && writes > 8 {
						return
					}
				}
			})
		}
	}
}

// Holds are settled, and released, at their cost where owners decide and the owner that held them is gone: the next one
// knows at once how much room there is.
func TestOwnerDiesBeforeASettlement(t *testing.T) {
	for name, p := range eachWay(100) {
		for _, cost := range []int64{13, 60, limiter.CostNothing} {
			for _, released := range []bool{false, true} {
				if released && cost != limiter.CostNothing {
					continue
				}
				bubble(t, fmt.Sprintf("%s at %d, released %v", name, cost, released), func(t *testing.T) {
					feed := embedded.New(nil)
					shared, link := &fakeStore{Store: feed}, new(toOwner)
					opts := limiter.Options{Feed: feed, StoreTimeout: timeout}
					link.engine = ownerOf(t, shared, ownsAll(), opts, p)
					asks, next := ownerOf(t, shared, &owners{other: link}, opts, p), ownerOf(t, shared, ownsAll(), opts, p)
					last := ownerOf(t, shared, &owners{other: link}, opts, p)
					for _, e := range []*limiter.Engine{next, last} {
						running(t, e)
					}
					d := limiter.Demand{Policy: somebody.Policy, Identifier: somebody.Identifier, Cost: 40}
					held := mustDo(t, asks, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{d}, Reserve: time.Minute})
					time.Sleep(10 * timeout)
					link.engine = next // as the owner and the one that reserved are gone
					if _, err := last.Take(t.Context(), d); err != nil {
						t.Fatal(err)
					}
					if released {
						must(t, last.Refund(t.Context(), held.Reservation))
					} else {
						mustDo(t, last, limiter.Call{Op: count.OpRecord, Reservation: held.Reservation, Cost: cost})
					}
					want := 40 + max(0, cost)
					for _, e := range []*limiter.Engine{last, next} {
						if got, err := e.Check(t.Context(), limiter.Demand{Policy: d.Policy, Identifier: d.Identifier}); err != nil || got.Used != want {
							t.Errorf("used %d, want %d: %v", got.Used, want, err)
						}
					}
					d.Cost = 100 - want
					if got, err := last.Take(t.Context(), d); d.Cost > 0 && (err != nil || !got.Allowed) {
						t.Errorf("what was given back is denied: %+v, %v", got.Verdict, err)
					}
					if got := mustTake(t, last); got.Allowed {
						t.Errorf("more than the limit: %+v", got.Verdict)
					}
				})
			}
		}
	}
}

// Of what a bucket held, the units that are kept drain first: it gives back what would be there if they alone had been added.
func TestRestOfABucketDrainsLast(t *testing.T) {
	for _, algorithm := range []string{"leaky-bucket", "token-bucket"} {
		for seconds, want := range map[int]int64{0: 30, 10: 20, 30: 0, 35: 0, 45: 0} {
			after := time.Duration(seconds) * time.Second
			for _, s := range []store.Store{embedded.New(nil), newFakeStore()} {
				bubble(t, fmt.Sprintf("%s, %T, after %v", algorithm, s, after), func(t *testing.T) {
					e := newEngine(t, s, 0, policyOf(algorithm, 100, 100*time.Second))
					d := somebody
					d.Cost = 40
					held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{d}, Reserve: time.Minute})
					time.Sleep(after)
					mustDo(t, e, limiter.Call{Op: count.OpRecord, Reservation: held.Reservation, Cost: 30})
					if got := usedBy(t, e, somebody); got != want {
						t.Errorf("used %d, want %d", got, want)
					}
				})
			}
		}
	}
}

// The call says what is wrong with a cost.
func TestCostsOfSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, embedded.New(nil), 0, policyOf("sliding-log", 100, time.Hour))
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute})
		one := []limiter.Demand{somebody}
		one[0].Cost = limiter.CostNothing
		below := []limiter.Demand{{Policy: "p", Identifier: "id", Cost: limiter.CostNothing - 1}}
		for name, call := range map[string]limiter.Call{
			"below nothing":          {Op: count.OpRecord, Reservation: held.Reservation, Cost: -2},
			"past the bound":         {Op: count.OpRecord, Reservation: held.Reservation, Cost: policy.MaxCost + 1},
			"beside a demand":        {Op: count.OpRecord, Reservation: held.Reservation, Demands: []limiter.Demand{somebody}, Cost: 1},
			"without reservation":    {Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Cost: 1},
			"a record of nothing":    {Op: count.OpRecord, Demands: one},
			"a take of nothing":      {Op: count.OpTake, Demands: one},
			"a check of nothing":     {Op: count.OpCheck, Demands: one},
			"a hold of nothing":      {Op: count.OpCheck, Demands: one, Reserve: time.Second},
			"a demand below nothing": {Op: count.OpRecord, Reservation: held.Reservation, Demands: below},
		} {
			var field *limiter.FieldError
			if _, err := e.Do(t.Context(), &call); !errors.As(err, &field) || !strings.HasSuffix(field.Field, "cost") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
