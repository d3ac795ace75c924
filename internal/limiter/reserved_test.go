package limiter_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// reserving returns a call that reserves demands.
func reserving(hold time.Duration, demands ...limiter.Demand) limiter.Call {
	return limiter.Call{Op: count.OpCheck, Demands: demands, Reserve: hold}
}

// TestReservationsAreDecidedByOwners reserves by another instance than the owner of the key, and holds that the owner then
// knows of the hold without a read, denies by it, and has room again once it has ended, and no more.
func TestReservationsAreDecidedByOwners(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared, link := newFakeStore(), new(toOwner)
			owns := ownerOf(t, shared, &owners{term: &tenancy{}}, limiter.Options{}, p)
			link.engine = owns
			asks := ownerOf(t, shared, &owners{other: link}, limiter.Options{}, p)
			running(t, owns)
			running(t, asks)
			of := limiter.Demand{Policy: p.Name, Identifier: "id"}
			other := limiter.Demand{Policy: p.Name, Identifier: "other"}
			if a := mustDo(t, asks, reserving(time.Second, other)); a.Reservation == "" { // the secret is known from now on
				t.Fatalf("%+v", a)
			}
			takesInTurn(t, asks, of, true)
			reads, writes := shared.counts()
			const hold = 5 * time.Second // so short that memory is not read again meanwhile
			if a := mustDo(t, asks, reserving(hold, of)); a.Reservation == "" || a.Used != 2 {
				t.Fatalf("%+v", a)
			}
			inCell := p.Limits[0].InCell() && p.Guarantee == policy.GuaranteeLocal // it is written to the cell, which is read
			if r, w := shared.counts(); !inCell && (r != reads || w != writes+1) {
				t.Errorf("%d reads and %d writes, want one write", r-reads, w-writes)
			}
			if a := mustDo(t, asks, reserving(time.Minute, of)); a.Allowed || a.Reservation != "" {
				t.Errorf("a second reservation: %+v", a)
			}
			takesInTurn(t, owns, of, false)
			time.Sleep(hold + 2*time.Second)
			takesInTurn(t, owns, of, true, false)
		})
	}
}

// TestSettledHoldStays settles a hold by another instance than its key's owner, and holds that the owner goes on without a
// read, and that the units stay when the hold would have ended.
func TestSettledHoldStays(t *testing.T) {
	for _, p := range inOwnersMemory(4) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared, link := newFakeStore(), new(toOwner)
			owns := ownerOf(t, shared, &owners{term: &tenancy{}}, limiter.Options{}, p)
			link.engine = owns
			asks := ownerOf(t, shared, &owners{other: link}, limiter.Options{}, p)
			running(t, owns)
			running(t, asks)
			of := limiter.Demand{Policy: p.Name, Identifier: "id", Cost: 2}
			takesInTurn(t, owns, limiter.Demand{Policy: p.Name, Identifier: "other"}, true) // the secret is known from now on
			held := mustDo(t, asks, reserving(time.Minute, of))
			of.Cost = 1
			settled := mustDo(t, asks, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{of}, Reservation: held.Reservation})
			if settled.Used != 1 && inLog(p.Limits[0].Algorithm) {
				t.Errorf("used %d after a settlement, want 1", settled.Used)
			}
			time.Sleep(2 * time.Second)
			reads, _ := shared.counts()
			takesInTurn(t, owns, of, true)
			if r, _ := shared.counts(); r != reads && inLog(p.Limits[0].Algorithm) {
				t.Errorf("%d reads after a settlement", r-reads)
			}
			time.Sleep(2 * time.Minute)
			takesInTurn(t, owns, of, true, true, false)
		})
	}
}

// TestHeldUnitsAreWrittenFirst holds that no reservation is lost with its owner, under any guarantee.
func TestHeldUnitsAreWrittenFirst(t *testing.T) {
	small := []policy.Policy{writtenFrom(50, "sliding-log", 20, time.Hour), writtenFrom(50, "fixed-window", 20, time.Hour)}
	for _, p := range append(inOwnersMemory(2), small...) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared := newFakeStore()
			dies := ownerOf(t, shared, &owners{term: &tenancy{}}, limiter.Options{}, p)
			of := limiter.Demand{Policy: p.Name, Identifier: "id"}
			if a := mustDo(t, dies, reserving(time.Minute, of)); a.Reservation == "" {
				t.Fatalf("%+v", a)
			}
			next := ownerOf(t, shared, ownsAll(), limiter.Options{}, p)
			if used := usedBy(t, next, of); used != 1 {
				t.Errorf("the next owner knows of %d held units, want 1", used)
			}
		})
	}
}

// TestReservationByAnOwnerThatIsOut holds that an owner that was set out holds nothing, under any guarantee.
func TestReservationByAnOwnerThatIsOut(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		if p.Limits[0].InCell() && p.Guarantee != policy.GuaranteeLocal { // its owner need not know that it is out
			continue
		}
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			term := &tenancy{fails: owner.ErrTermEnded}
			e := ownerOf(t, newFakeStore(), &owners{term: term}, limiter.Options{}, p)
			call := reserving(time.Minute, limiter.Demand{Policy: p.Name, Identifier: "id"})
			_, err := e.Do(t.Context(), &call)
			if failed := (*count.StoreError)(nil); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
				t.Errorf("the error is %v, want one that says unknown", err)
			}
		})
	}
}

// TestHoldsThatHaveEndedHideNothing has an owner hold units again and again, and holds that an event from before them
// counts all the same.
func TestHoldsThatHaveEndedHideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := ownerOf(t, newFakeStore(), &owners{term: &tenancy{}}, limiter.Options{}, logOf(2))
		of := limiter.Demand{Policy: "log", Identifier: "id"}
		takesInTurn(t, e, of, true)
		for range 100 {
			if a := mustDo(t, e, reserving(time.Second, of)); a.Reservation == "" {
				t.Fatalf("%+v", a)
			}
			time.Sleep(2 * time.Second)
		}
		takesInTurn(t, e, of, true, false)
	})
}

// TestReservationOfSeveralDemands holds that units are held for all demands of a call or for none, that each ends by
// itself, and that those that are settled stay.
func TestReservationOfSeveralDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 3, oneLimit("log", "sliding-log", 2), oneLimit("rows", "fixed-window", 2),
			oneLimit("bucket", "token-bucket", 2), oneLimit("none", "sliding-log", 0))
		all := []limiter.Demand{{Policy: "log", Identifier: "a"}, {Policy: "rows", Identifier: "a"}, {Policy: "bucket", Identifier: "a"}}
		used := func(want int64, when string) {
			t.Helper()
			for _, d := range all {
				if got := usedBy(t, r.engines[1], d); got != want {
					t.Errorf("%s: used %d of %s, want %d", when, got, d.Policy, want)
				}
			}
		}
		none := append([]limiter.Demand{{Policy: "none", Identifier: "a"}}, all...)
		if a := mustDo(t, r.engines[0], reserving(time.Minute, none...)); a.Allowed || a.Reservation != "" {
			t.Fatalf("%+v", a.Decision)
		}
		time.Sleep(time.Second)
		used(0, "after a denial")
		ends, stays := mustDo(t, r.engines[0], reserving(time.Minute, all...)), mustDo(t, r.engines[2], reserving(time.Minute, all...))
		if ends.Reservation == "" || stays.Reservation == "" {
			t.Fatalf("%+v, %+v", ends.Decision, stays.Decision)
		}
		used(2, "held")
		if a := mustDo(t, r.engines[1], reserving(time.Minute, all...)); a.Allowed {
			t.Errorf("a third: %+v", a.Decision)
		}
		mustDo(t, r.engines[1], limiter.Call{Op: count.OpRecord, Reservation: stays.Reservation})
		time.Sleep(time.Minute + 2*time.Second)
		used(1, "after one was settled, and one has ended")
	})
}

// TestCellIsGivenBack holds that of two buckets that are decided one after the other the first gives its unit back, once,
// where the second has no room, though nobody hears of it the first time.
func TestCellIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 3, oneLimit("first", "conversion", 10), oneLimit("second", "token-bucket", 20))
		first := limiter.Demand{Policy: "first", Identifier: r.ownedBy(t, 1, "first", 0)}
		second := limiter.Demand{Policy: "second", Identifier: r.ownedBy(t, 1, "second", 0), Cost: 19}
		_, err := r.engines[0].Record(t.Context(), second)
		must(t, err)
		asked := 0
		r.meet = func(c *demand.Charge) (time.Duration, bool) {
			if c.Op == owner.OpGiveBack {
				asked++
			}
			return 0, c.Op == owner.OpGiveBack && asked == 1
		}
		second.Cost = 1
		both := callOf(first, second)
		for i, want := range []bool{true, false} {
			if a, err := r.engines[2*i].Do(t.Context(), both); err != nil || a.Allowed != want {
				t.Fatalf("call %d: %+v, %v", i, a.Decision, err)
			}
		}
		time.Sleep(5 * time.Second)
		if used := r.usedOf(t, "first", first.Identifier); used != 1 || asked < 2 {
			t.Errorf("%d used of the first after %d attempts to give one back, want 1", used, asked)
		}
	})
}
