package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// gaveBack is a key without room, of which remembers knows.
type gaveBack struct {
	store                *fakeStore // of what an owner told; else nil
	remembers, elsewhere *limiter.Engine
	receipt              string      // of a unit of it
	knows                func() bool // whether the next take is denied by what is remembered
	outage               func()      // after which only memory and own counts decide; nil: there is none
}

// knownFullAtAll has a key of policy filled for each memory of full keys that the policy goes by.
func knownFullAtAll() map[string]func(*testing.T) *gaveBack {
	memories := map[string]func(*testing.T) *gaveBack{
		"what an owner told":  fullAsTold,
		"what an owner knows": fullAtItsOwner,
	}
	for _, algorithm := range remembered() {
		memories["a denial, "+algorithm] = func(t *testing.T) *gaveBack { return fullAsDenied(t, policyOf(algorithm, 1, time.Hour)) }
	}
	memories["a denial, rows"] = func(t *testing.T) *gaveBack { return fullAsDenied(t, inRows("fixed-window", 1, time.Hour)) }
	for name, p := range withOwnCounts() {
		if p.Count == policy.CountAll {
			continue // what denies is not given back by a refund: attempts that were denied count as well
		}
		p.Limits[0].Limit = 1
		memories["without the store, "+name] = func(t *testing.T) *gaveBack { return fullWithoutTheStore(t, p) }
	}
	return memories
}

// fillOne takes the one unit that there is room for, by e, and returns its receipt.
func fillOne(t *testing.T, e *limiter.Engine) (receipt string) {
	t.Helper()
	a := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
	if !a.Allowed || a.Receipt == "" {
		t.Fatalf("%+v", a)
	}
	time.Sleep(3 * timeout) // nobody takes it back any more
	return a.Receipt
}

func fullAsTold(t *testing.T) *gaveBack {
	store, link, asks, owns := askerAndOwner(t)
	f := &gaveBack{store: store, remembers: asks, elsewhere: owns, receipt: fillOne(t, asks)}
	mustTake(t, asks)
	f.knows = func() bool {
		before := link.asked.Load()
		d := mustTake(t, asks)
		return !d.Allowed && link.asked.Load() == before
	}
	return f
}

func fullAtItsOwner(t *testing.T) *gaveBack {
	store, _, asks, owns := askerAndOwner(t)
	f := &gaveBack{remembers: owns, elsewhere: asks, receipt: fillOne(t, owns)}
	mustTake(t, owns)
	f.knows = func() bool { d, asked := store.asks(t, owns); return !d.Allowed && asked == 0 }
	return f
}

// askerAndOwner returns two engines that run over store, one of which asks the other over link.
func askerAndOwner(t *testing.T) (store *fakeStore, link *toOwner, asks, owns *limiter.Engine) {
	feed := embedded.New(nil)
	store, link = &fakeStore{Store: feed}, new(toOwner)
	policy, opts := policyOf("sliding-log", 1, time.Hour), limiter.Options{Feed: feed, StoreTimeout: timeout}
	owns = ownerOf(t, store, ownsAll(), opts, policy)
	link.engine = owns
	asks = ownerOf(t, store, &owners{other: link}, opts, policy)
	running(t, owns)
	running(t, asks)
	return store, link, asks, owns
}

func fullAsDenied(t *testing.T, policy policy.Policy) *gaveBack {
	store := newFakeStore()
	e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
	running(t, e)
	running(t, other)
	f := &gaveBack{remembers: e, elsewhere: other, receipt: fillOne(t, e)}
	deny(t, e)
	f.knows = func() bool { d, asked := store.asks(t, e); return !d.Allowed && d.Remembered && asked == 0 }
	return f
}

func fullWithoutTheStore(t *testing.T, policy policy.Policy) *gaveBack {
	store, feed := newFakeStore(), newFakeFeed()
	e, other := instance(t, store, feed, policy), instance(t, store, feed, policy)
	f := &gaveBack{remembers: e, elsewhere: other, receipt: fillOne(t, other)} // so that own counts have room
	mustTake(t, e)
	f.outage = func() { outage(store) }
	f.knows = func() bool {
		ends := outage(store)
		defer ends()
		return !mustTake(t, e).Allowed
	}
	return f
}

// TestWhatIsGivenBackEndsWhatIsKnown fills a key, lets an instance remember that, and gives the unit back by a refund or a
// reset, on that instance and on another one: no remembered denial outlasts the time that news take. That time is shorter
// than any for which a denial is remembered.
func TestWhatIsGivenBackEndsWhatIsKnown(t *testing.T) {
	ways := map[string]func(e *limiter.Engine, ctx context.Context, receipt string) error{
		"refund": (*limiter.Engine).Refund,
		"reset": func(e *limiter.Engine, ctx context.Context, _ string) error {
			return e.Reset(ctx, somebody.Policy, somebody.Identifier)
		},
	}
	for memory, fill := range knownFullAtAll() {
		for way, give := range ways {
			for _, where := range []string{"here", "elsewhere"} {
				bubble(t, memory+", "+way+" "+where, func(t *testing.T) {
					time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour) // far from an edge
					f := fill(t)
					by := f.remembers
					if where == "elsewhere" {
						by = f.elsewhere
					}
					if !f.knows() {
						t.Fatal("what is known denies nobody: there is nothing to end")
					}
					must(t, give(by, t.Context(), f.receipt))
					time.Sleep(timeout * 4 / 5)
					if f.outage != nil {
						f.outage()
					}
					if d := mustTake(t, f.remembers); !d.Allowed {
						t.Errorf("denied though there is room: %+v", d.Verdict)
					}
				})
			}
		}
	}
}
