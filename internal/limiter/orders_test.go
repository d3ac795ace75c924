package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// inOwnersMemory returns policies of each kind that an owner keeps in memory, with this limit.
func inOwnersMemory(limit int64) (all []policy.Policy) {
	for _, algorithm := range writtenBehind() {
		all = append(all, inMemory(algorithm, limit, time.Hour))
	}
	for _, algorithm := range writtenFirst() {
		all = append(all, policyOf(algorithm, limit, time.Hour))
	}
	return append(all, inRows("fixed-window", limit, time.Hour))
}

// TestOwnerForgetsWhatIsReset resets a full key by another instance than its owner, and holds that the owner has room for it
// at once, before it hears of the reset.
func TestOwnerForgetsWhatIsReset(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared, link := newFakeStore(), new(toOwner)
			owns := ownerOf(t, shared, &owners{right: &tenancy{}}, limiter.Options{}, p)
			link.engine = owns
			asks := ownerOf(t, shared, &owners{other: link}, limiter.Options{}, p)
			of := limiter.Demand{Policy: p.Name, Identifier: "id"}
			for range 3 { // it may be that a reset comes before anything else
				must(t, asks.Reset(t.Context(), p.Name, "id"))
				for i, want := range []bool{true, true, false} {
					if d, err := owns.Take(t.Context(), of); err != nil || d.Allowed != want {
						t.Errorf("take %d: allowed %t, %v; want %t", i, d.Allowed, err, want)
					}
				}
			}
		})
	}
}

// gone is an owner that can't be reached once, has moved once, and then is there.
type gone struct {
	*toOwner
	asked int
}

func (g *gone) Decide(ctx context.Context, call *owner.Call, a *owner.Answer) error {
	switch g.asked++; g.asked {
	case 1:
		return store.ErrNotStored
	case 2:
		return owner.ErrRefused
	}
	return g.toOwner.Decide(ctx, call, a)
}

// TestResetIsSentAgainIfSurelyUndone holds that a reset which did not reach the owner of its key reaches the next one.
func TestResetIsSentAgainIfSurelyUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, link := embedded.New(nil), new(toOwner)
		owns := ownerOf(t, &fakeStore{Store: counts}, ownsAll(), limiter.Options{}, logOf(1))
		link.engine = owns
		other := &gone{toOwner: link}
		asks := ownerOf(t, &fakeStore{Store: counts}, &owners{other: other}, limiter.Options{}, logOf(1))
		if ok, err := takeOne(t.Context(), owns); !ok {
			t.Fatal(err)
		}
		must(t, asks.Reset(t.Context(), "log", "id"))
		if ok, err := takeOne(t.Context(), owns); !ok || other.asked != 3 {
			t.Errorf("after a reset that was asked for %d times, a take is admitted: %t, %v", other.asked, ok, err)
		}
	})
}

// TestResetKeysAreNotNew holds that an owner which resets a key that is new to it counts from then on after the reset: what
// is dated before would be missing for the next owner.
func TestResetKeysAreNotNew(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared, opts := newFakeStore(), limiter.Options{ClockTolerance: time.Second}
			first := ownerOf(t, shared, &owners{right: &tenancy{}}, opts, p)
			of := limiter.Demand{Policy: p.Name, Identifier: "id"}
			must(t, first.Reset(t.Context(), p.Name, "id"))
			for range 2 {
				if d, err := first.Take(t.Context(), of); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			first.Flush(t.Context())
			next := ownerOf(t, shared, ownsAll(), opts, p)
			if d, err := next.Take(t.Context(), of); err != nil || d.Allowed {
				t.Errorf("of two units, the next owner knows %d, %v", d.Used, err)
			}
		})
	}
}
