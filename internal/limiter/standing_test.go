package limiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// allowance is what one instance counts ahead of each key of standingRows' policy.
const allowance = 1000 / 64

// standingRows is a policy in rows whose instances count ahead of all keys at once.
func standingRows(window time.Duration) limiter.Policy {
	policy := earlyRows(window)
	policy.Leases = limiter.LeasesStanding
	return policy
}

// standing calls test with two engines over a store, of which e has an allowance.
func standing(t *testing.T, policy limiter.Policy, test func(t *testing.T, store *fakeStore, e, other *limiter.Engine)) {
	bubble(t, policy.Limits[0].Algorithm, func(t *testing.T) {
		store := newFakeStore()
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		stand(t, e)
		test(t, store, e, other)
	})
}

// stand has e, which runs, make its allowance.
func stand(t *testing.T, e *limiter.Engine) {
	t.Helper()
	takeOf(t, e, "whoever comes first")
	time.Sleep(1100 * time.Millisecond)
}

// comeLate has an instance make its allowance now, when somebody is full: it is for others.
func comeLate(t *testing.T, store *fakeStore, policy limiter.Policy) {
	t.Helper()
	late := toldEngine(t, store, policy)
	running(t, late)
	stand(t, late)
	if d := mustTake(t, late); d.Allowed {
		t.Errorf("%+v: admitted by an allowance that was made after the key was full", d)
	}
	if d := takeOf(t, late, "somebody else"); !d.Leased {
		t.Errorf("%+v: that is no reason to ask for others", d)
	}
}

func takeOf(t *testing.T, e *limiter.Engine, id limiter.Identifier) limiter.Decision {
	t.Helper()
	d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: id})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// isAllowance reports whether w stores an allowance under standingRows' policy, and isNote
// whether it notes a high key.
func isAllowance(w *limiter.Write) bool { return len(w.Put) == 1 && w.Put[0].Limit == "1000" }

func isNote(w *limiter.Write) bool {
	return len(w.Put) == 1 && len(w.Put[0].Limit) == 2*limiter.KeySize
}

func notLeased(d limiter.Decision) bool { return !d.Leased }

// Who was never seen is admitted from memory, as often as the allowance says; then the store
// is asked.
func TestStandingLeasesAskNobody(t *testing.T) {
	for _, algorithm := range []string{"sliding-tail", "fixed-window"} {
		policy := standingRows(time.Minute)
		policy.Limits[0].Algorithm = algorithm
		standing(t, policy, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
			reads, writes := store.counts()
			for i := range 100 {
				for used := range 3 {
					if d := takeOf(t, e, limiter.Identifier(strconv.Itoa(i))); !d.Leased || d.Used != int64(used)+1 {
						t.Fatalf("%+v: want unit %d of the allowance", d, used+1)
					}
				}
			}
			if readsNow, writesNow := store.counts(); readsNow != reads || writesNow != writes {
				t.Errorf("the store was asked: %d reads, %d writes", readsNow-reads, writesNow-writes)
			}
			if d, err := e.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: "7"}); err != nil || d.Used != 3 {
				t.Errorf("%+v, %v: want the 3 that were handed out", d, err)
			}
			if taken := takeUntil(t, e, 1000, notLeased); taken != allowance {
				t.Errorf("%d units of the allowance, want %d", taken, allowance)
			}
			if d := mustTake(t, e); !d.Leased || d.Used != allowance+2 { // between them the store was asked
				t.Errorf("%+v: want the unit after that", d)
			}
			if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "costly", Cost: allowance + 1}); err != nil {
				t.Fatal(err)
			}
			if readsNow, _ := store.counts(); readsNow < reads+3 {
				t.Error("more than the allowance was admitted without asking")
			}
		})
	}
}

// Two instances of which one has an allowance admit the limit together: who fills a key
// leaves room for the allowance, whether that was there before or comes after.
func TestHighKeysKnowAllowances(t *testing.T) {
	policy := standingRows(time.Hour)
	standing(t, policy, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		if taken := takeUntil(t, other, 1100, isDenied); taken != 1000-allowance {
			t.Errorf("%d admitted beside an allowance of %d", taken, allowance)
		}
		if taken := takeUntil(t, e, 1100, isDenied); taken != allowance {
			t.Errorf("%d admitted by the allowance", taken)
		}
		if d, err := other.Check(t.Context(), somebody); err != nil || d.WouldAllow || d.Used != 1000 {
			t.Errorf("%+v, %v", d, err)
		}
		comeLate(t, store, policy)
	})
}

// Where one instance counts alone, what it has not spent of its allowance denies nobody.
func TestOneInstanceDeniesNobodyEarly(t *testing.T) {
	for _, algorithm := range []string{"sliding-tail", "fixed-window"} {
		policy := standingRows(time.Minute)
		policy.Limits[0].Algorithm = algorithm
		bubble(t, algorithm, func(t *testing.T) {
			pure := limiter.NewMachine(policy)
			e := toldEngine(t, newFakeStore(), policy)
			running(t, e)
			take := func(n int) {
				t.Helper()
				for range n {
					want, d := pure.Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1), mustTake(t, e)
					if want.Allowed != d.Allowed {
						t.Fatalf("%v: allowed %v of %d used, want %v of %d", time.Now(), d.Allowed, d.Used, want.Allowed, want.Used)
					}
				}
			}
			take(700)
			time.Sleep(2 * time.Second) // there is an allowance by now
			take(400)
			for range 5 {
				nearEnd(-3 * time.Second)
				take(1100)
				time.Sleep(20 * time.Second)
				take(600)
			}
		})
	}
}

// What a process takes for unspent when it finds a key high is not spent later.
func TestAllowanceThatIsEndedIsNotSpent(t *testing.T) {
	standing(t, standingRows(time.Hour), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		admitted := int64(500)
		for range admitted {
			if d := mustTake(t, other); !d.Allowed {
				t.Fatalf("%+v", d)
			}
		}
		for _, cost := range []int64{allowance + 5, 1} {
			for {
				d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: somebody.Identifier, Cost: cost})
				if err != nil {
					t.Fatal(err)
				}
				if !d.Allowed {
					break
				}
				admitted += cost
			}
		}
		if admitted > 1000 || admitted < 1000-allowance {
			t.Errorf("%d admitted", admitted)
		}
	})
}

// An allowance is spent before a lease of the same key denies what it leaves no room for.
func TestAllowanceIsSpentBesideALease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		mustTake(t, e) // with a lease
		time.Sleep(1100 * time.Millisecond)
		filled := takeUntil(t, other, 1100, isDenied)
		if own := 1 + takeUntil(t, e, 1100, isDenied); filled+own != 1000 {
			t.Errorf("%d and %d admitted, want 1000", filled, own)
		}
	})
}

// A key that was filled in the window before has faded by little: the allowance of the next
// window is not for it.
func TestAllowanceIsNotForWhoFilledTheWindowBefore(t *testing.T) {
	for name, filling := range map[string]struct {
		before time.Duration // the end of the window
		room   int           // beside the allowances that there are then
	}{
		"after it was made":  {2 * time.Second, 1000 - 2*allowance},
		"before it was made": {30 * time.Second, 1000 - allowance},
	} {
		bubble(t, name, func(t *testing.T) {
			store, policy := newFakeStore(), standingRows(time.Minute)
			e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
			running(t, e)
			stand(t, e)
			nearEnd(filling.before)
			for range allowance {
				mustTake(t, e)
			}
			filled := takeUntil(t, other, 1100, isDenied)
			if filled != filling.room {
				t.Errorf("%d admitted, want %d", filled, filling.room)
			}
			nearEnd(10 * time.Millisecond)
			time.Sleep(20 * time.Millisecond)
			if d := takeOf(t, e, "somebody else"); !d.Leased {
				t.Errorf("%+v: want a unit of the next window's allowance", d)
			}
			taken := takeUntil(t, e, 1100, isDenied) + takeUntil(t, other, 1100, isDenied)
			if (filled+allowance)*59_990/60_000+taken > 1000 { // 10 ms later
				t.Errorf("%d in a window, and %d at the start of the next", filled+allowance, taken)
			}
		})
	}
}

// A key that gets high while an allowance is on its way: whichever is stored last knows of the
// other.
func TestKeyThatGetsHighWhileAnAllowanceIsMade(t *testing.T) {
	bubble(t, "before the allowance is stored", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		var once atomic.Bool
		filled := make(chan int, 1)
		store.onWrite = func(w *limiter.Write) error {
			if isAllowance(w) && once.CompareAndSwap(false, true) {
				n := 0
				for d, err := other.Take(context.Background(), somebody); err == nil && d.Allowed; d, err = other.Take(context.Background(), somebody) {
					n++
				}
				filled <- n
			}
			return nil
		}
		running(t, e)
		stand(t, e)
		if taken := <-filled + takeUntil(t, e, 1100, isDenied); taken != 1000 {
			t.Errorf("%d admitted", taken)
		}
	})
	bubble(t, "before it is noted", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		store.onWrite = func(w *limiter.Write) error {
			if isNote(w) {
				time.Sleep(200 * time.Millisecond) // e makes its allowance meanwhile
			}
			return nil
		}
		running(t, e)
		takeOf(t, e, "whoever comes first")
		time.Sleep(900 * time.Millisecond)
		taken := takeUntil(t, other, 1100, isDenied)
		if d := takeOf(t, e, "somebody else"); !d.Leased {
			t.Errorf("%+v: want an allowance by now", d)
		}
		if taken += takeUntil(t, e, 1100, isDenied); taken != 1000 {
			t.Errorf("%d admitted", taken)
		}
	})
}

// A key that is high window after window is noted in each.
func TestHighKeysAreNotedInEachWindow(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Minute)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		takeUntil(t, other, 1100, isDenied)
		nearEnd(0)
		running(t, e)
		stand(t, e)
		filled := 0
		for time.Until(nextMinute()) > time.Second {
			if mustTake(t, other).Allowed {
				filled++
			}
			time.Sleep(20 * time.Millisecond)
		}
		nearEnd(-10 * time.Millisecond)
		if d := takeOf(t, e, "somebody else"); !d.Leased {
			t.Errorf("%+v: want a unit of the allowance", d)
		}
		if taken := takeUntil(t, other, 1100, isDenied) + takeUntil(t, e, 1100, isDenied); filled+taken > 1000 {
			t.Errorf("%d in a window, and %d at the start of the next", filled, taken)
		}
	})
}

// Where few share, each takes more ahead, and asks less.
func TestFewInstancesTakeMoreAhead(t *testing.T) {
	asked := make(map[limiter.LeaseMode]int)
	for _, mode := range []limiter.LeaseMode{limiter.LeasesEarly, limiter.LeasesStanding} {
		policy := standingRows(time.Hour)
		policy.Leases = mode
		standing(t, policy, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
			reads, _ := store.counts()
			takeUntil(t, e, 1100, isDenied)
			now, _ := store.counts()
			asked[mode] = now - reads
		})
	}
	if asked[limiter.LeasesStanding] > asked[limiter.LeasesEarly]/2 {
		t.Errorf("reads for 1000 units: %v", asked)
	}
}

// How many share is looked at while a window lasts: who was alone takes less ahead when
// others have come.
func TestInstancesThatComeLaterAreCounted(t *testing.T) {
	standing(t, standingRows(24*time.Hour), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		takeUntil(t, e, 100, notLeased)
		for range 3 {
			takeUntil(t, e, 400, notLeased)
		}
		if alone := takeUntil(t, e, 400, notLeased); alone <= 1000/16 {
			t.Errorf("%d units ahead of one instance alone", alone)
		}
		for range 9 {
			other := toldEngine(t, store, standingRows(24*time.Hour))
			running(t, other)
			stand(t, other)
		}
		for range 62 { // it is asked for all the time
			time.Sleep(time.Second)
			takeOf(t, e, "somebody else")
		}
		takeUntil(t, e, 400, notLeased)
		if ahead := takeUntil(t, e, 400, notLeased); ahead > 1000/16 {
			t.Errorf("%d units ahead of one of ten instances", ahead)
		}
	})
}

// Allowances of the next window are made before it begins.
func TestAllowancesOfTheNextWindow(t *testing.T) {
	standing(t, standingRows(time.Minute), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		for range 5 {
			takeUntil(t, e, 100, notLeased)
			nearEnd(time.Second)
			reads, writes := store.counts()
			time.Sleep(1001 * time.Millisecond)
			for i := range 100 {
				if d := takeOf(t, e, limiter.Identifier(strconv.Itoa(i))); !d.Leased || d.Used != 1 {
					t.Fatalf("%+v: want a unit of the allowance", d)
				}
			}
			if readsNow, writesNow := store.counts(); readsNow != reads || writesNow != writes {
				t.Errorf("%d reads and %d writes at the start of a window", readsNow-reads, writesNow-writes)
			}
		}
	})
}

// Instances that start at the same time see none of each other: what they may hand out
// together stays bounded.
func TestAllowancesTogetherAreBounded(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		store.writeTakes = 10 * time.Millisecond
		var all []*limiter.Engine
		for range 40 {
			e := toldEngine(t, store, policy)
			running(t, e)
			all = append(all, e)
			takeOf(t, e, "whoever comes first")
		}
		store.set(func() { store.writeTakes = 100 * time.Millisecond }) // so that many don't see each other
		time.Sleep(5 * time.Second)
		leased := 0
		for _, e := range all {
			for d := mustTake(t, e); d.Leased && leased < 1000; d = mustTake(t, e) {
				leased++
			}
		}
		if leased > 1000/4 {
			t.Errorf("%d units by allowances of a limit of 1000", leased)
		}
		admitted, last := 0, toldEngine(t, store, policy)
		for takeOf(t, last, "somebody else").Allowed {
			admitted++
		}
		if admitted < 750 {
			t.Errorf("%d admitted beside allowances that are in use and those that are not", admitted)
		}
	})
}

// Where there are instances already, each that comes takes a smaller part.
func TestAllowancesAreShared(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		var shares []int
		for range 24 {
			e := toldEngine(t, store, policy)
			running(t, e)
			stand(t, e)
			shares = append(shares, takeUntil(t, e, 1000, notLeased))
		}
		if shares[0] != allowance || shares[15] != 1000/4/2/16 {
			t.Errorf("shares %v: want %d at first, and half of a 16th of a fourth for the 16th", shares, allowance)
		}
	})
}

// The store fails while an allowance is made: there is none, callers are admitted by asking,
// and it is made when the store answers; by a row of the same units, if it was stored.
func TestAllowanceThatCannotBeStored(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "not stored": false} {
		bubble(t, name, func(t *testing.T) {
			store, policy := newFakeStore(), standingRows(time.Hour)
			var mu sync.Mutex
			var rows []limiter.Tally
			var fails atomic.Bool
			fails.Store(true)
			store.onWrite = func(w *limiter.Write) error {
				if !isAllowance(w) {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, w.Put[0])
				if fails.Load() && stored {
					_ = store.Store.Write(t.Context(), w)
				}
				if fails.Load() {
					return errors.Join(limiter.ErrUnavailable, errors.New("nobody knows"))
				}
				return nil
			}
			e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
			running(t, e)
			stand(t, e)
			if d := mustTake(t, e); d.Leased {
				t.Errorf("%+v: by an allowance that may not be stored", d)
			}
			fails.Store(false)
			time.Sleep(time.Second)
			if d := takeOf(t, e, "somebody else"); !d.Leased {
				t.Errorf("%+v: want a unit of the allowance", d)
			}
			mu.Lock()
			defer mu.Unlock()
			if first, last := rows[0], rows[len(rows)-1]; len(rows) < 2 || first.Row != last.Row || last.Stamp <= first.Stamp {
				t.Errorf("%+v: want one row, stored again", rows)
			}
			if taken := takeUntil(t, other, 1100, isDenied) + takeUntil(t, e, 1100, isDenied); taken != 999 {
				t.Errorf("%d admitted beside 1", taken)
			}
		})
	}
}

// While others can't be told that a key is high, or what they have can't be read, nobody is
// admitted to it.
func TestHighKeyThatCannotBeNoted(t *testing.T) {
	standing(t, standingRows(time.Hour), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		taken := takeUntil(t, other, 1100, func(d limiter.Decision) bool { return d.Used >= 400 }) + 1
		var failing atomic.Bool
		failing.Store(true)
		store.set(func() {
			store.onWrite = func(w *limiter.Write) error {
				if failing.Load() && isNote(w) {
					return errors.Join(limiter.ErrUnavailable, errors.New("no"))
				}
				return nil
			}
		})
		for range 300 {
			d, err := other.Take(t.Context(), somebody)
			if failed := (*limiter.StoreError)(nil); errors.As(err, &failed) {
				if failed.Recorded == limiter.RecordedYes {
					t.Fatalf("%v: counted, it says", err)
				}
				break
			}
			if taken++; d.Used > 600 {
				t.Fatalf("%+v: admitted to a high key of which nobody knows", d)
			}
		}
		failing.Store(false)
		time.Sleep(2 * time.Second)
		if taken += takeUntil(t, other, 1100, isDenied) + takeUntil(t, e, 1100, isDenied); taken > 1000 || taken < 1000-allowance {
			t.Errorf("%d admitted", taken)
		}
	})
}

// Who is denied beside allowances is remembered as long as anybody else.
func TestDenialBesideAllowancesIsRemembered(t *testing.T) {
	standing(t, standingRows(time.Hour), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		takeUntil(t, e, 1100, isDenied)
		mustTake(t, e)
		time.Sleep(time.Second)
		reads, _ := store.counts()
		for range 8 {
			if d := mustTake(t, e); d.Allowed || d.Used != 1000 {
				t.Errorf("%+v: want it denied", d)
			}
			time.Sleep(time.Second)
		}
		if now, _ := store.counts(); now > reads+1 {
			t.Errorf("%d reads for 8 denials", now-reads)
		}
	})
}

// A unit of the allowance is given back as any other.
func TestUnitsOfAllowancesAreRefunded(t *testing.T) {
	standing(t, standingRows(time.Hour), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		var receipts []string
		for range allowance {
			a, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}})
			if err != nil || !a.Allowed {
				t.Fatal(a, err)
			}
			receipts = append(receipts, a.Receipt)
		}
		for _, receipt := range receipts[:5] {
			if err := e.Refund(t.Context(), receipt); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		if taken := takeUntil(t, other, 1100, isDenied) + takeUntil(t, e, 1100, isDenied); taken != 1000-allowance+5 {
			t.Errorf("%d admitted beside %d, of which 5 were given back", taken, allowance)
		}
	})
}

// A reset forgets what was counted of a key, and the allowance goes on counting against it.
func TestResetBesideAnAllowance(t *testing.T) {
	standing(t, standingRows(time.Hour), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		takeUntil(t, other, 1100, isDenied)
		takeUntil(t, e, 1100, isDenied)
		if err := other.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if taken := takeUntil(t, other, 1100, isDenied) + takeUntil(t, e, 1100, isDenied); taken != 1000-allowance {
			t.Errorf("%d admitted after a reset", taken)
		}
	})
}

// While the hash key changes nothing is handed out by allowances, and those of instances that
// have not heard of it count.
func TestAllowancesWhileTheHashKeyChanges(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		engineOf := func(keyer limiter.Keyer, also ...limiter.Keyer) *limiter.Engine {
			e := limiter.New(store, &limiter.Options{
				ClockTolerance: tolerance, StoreTimeout: timeout, Feed: store.Store.(*embedded.Store), Keyer: keyer, AlsoRead: also,
			})
			if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
				t.Fatal(err)
			}
			running(t, e)
			return e
		}
		before := engineOf(secretOf("1"), secretOf("2"))
		after := engineOf(secretOf("2"), secretOf("1"))
		unaware := engineOf(secretOf("1"))
		stand(t, unaware)
		stand(t, before)
		for _, e := range []*limiter.Engine{before, after} {
			if d := takeOf(t, e, "somebody else"); d.Leased {
				t.Errorf("%+v: by an allowance under a hash key that others don't count by", d)
			}
		}
		if taken := takeUntil(t, after, 1100, isDenied); taken != 1000-allowance {
			t.Errorf("%d admitted beside the allowance of who has not heard of the new hash key", taken)
		}
		late := engineOf(secretOf("1"))
		stand(t, late)
		if d := mustTake(t, late); d.Leased {
			t.Errorf("%+v: the key is high under another hash key", d)
		}
	})
}

// A clock beyond the tolerance makes no allowances.
func TestNoAllowanceByAClockThatIsWrong(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		var skewed atomic.Bool
		e := limiter.New(store, &limiter.Options{ClockTolerance: tolerance, StoreTimeout: timeout, Skewed: skewed.Load})
		if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
		running(t, e)
		takeOf(t, e, "whoever comes first")
		skewed.Store(true)
		_, writes := store.counts()
		time.Sleep(3 * time.Second)
		if _, now := store.counts(); now != writes {
			t.Errorf("%d writes", now-writes)
		}
	})
}

// A reload that changes nothing of how a policy counts goes on with its allowance; another
// limit has one of its own, and that of a single key has none.
func TestAllowancesAndReloads(t *testing.T) {
	policy := standingRows(time.Hour)
	standing(t, policy, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		reload := func(change func(*limiter.Policy)) {
			t.Helper()
			changed := standingRows(time.Hour)
			change(&changed)
			if err := e.SetPolicies([]limiter.Policy{changed}); err != nil {
				t.Fatal(err)
			}
		}
		_, writes := store.counts()
		for range 5 {
			mustTake(t, e)
			reload(func(p *limiter.Policy) { p.Description, p.OnStoreError = "as before", limiter.OnStoreErrorAllow })
		}
		if taken := takeUntil(t, e, 100, notLeased); taken != allowance-5 {
			t.Errorf("%d units after a reload, want what was left of %d", taken, allowance-5)
		}
		if _, now := store.counts(); now != writes+1 {
			t.Errorf("%d writes, want one for the unit after the allowance", now-writes)
		}
		reload(func(p *limiter.Policy) { p.Limits[0].Limit = 2000 })
		if d := takeOf(t, e, "somebody else"); d.Leased {
			t.Errorf("%+v: by an allowance of another limit", d)
		}
		reload(func(*limiter.Policy) {})
		stand(t, e)
		o := limiter.Override{
			Kind: limiter.OverrideLimits, Limits: []limiter.LimitOverride{{Name: "sliding-tail-1h", Limit: 100_000}},
			Until: limiter.InstantOf(time.Now().Add(time.Hour)),
		}
		if _, err := e.SetOverride(t.Context(), "p", "exceptional", o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for range 3 {
			takeOf(t, e, "exceptional")
			time.Sleep(time.Second)
		}
		if taken := takeUntil(t, other, 1100, isDenied); taken != 1000-allowance-allowance-1-allowance {
			t.Errorf("%d admitted beside two allowances, and a unit with as many ahead", taken)
		}
	})
}

// What is left of a lease of a high key does not go on: in the next windows nobody would note
// the key for it.
func TestLeaseOfAHighKeyDoesNotGoOn(t *testing.T) {
	for _, taken := range []int{20, 600} {
		bubble(t, strconv.Itoa(taken), func(t *testing.T) {
			e := toldEngine(t, newFakeStore(), standingRows(time.Minute))
			time.Sleep(700 * time.Millisecond) // so that leases are looked through then, in each second
			running(t, e)
			stand(t, e)
			nearEnd(10 * time.Second)
			for range taken {
				mustTake(t, e)
			}
			if taken > 500 {
				takeUntil(t, e, 1000, notLeased) // with another lease
			}
			mustTake(t, e)
			nearEnd(-10 * time.Millisecond)
			leased := takeUntil(t, e, 1000, notLeased)
			if high := taken > 500; high != (leased == 0) || !high && leased <= allowance {
				t.Errorf("%d units in the next window after %d, without asking", leased, taken)
			}
		})
	}
}

// An override of a key goes by other limits, and so do those who note it: always.
func TestAllowancesAndOverrides(t *testing.T) {
	limitTo := func(t *testing.T, e *limiter.Engine, limit int64) {
		t.Helper()
		o := limiter.Override{
			Kind: limiter.OverrideLimits, Limits: []limiter.LimitOverride{{Name: "sliding-tail-1h", Limit: limit}},
			Until: limiter.InstantOf(time.Now().Add(time.Minute)),
		}
		if _, err := e.SetOverride(t.Context(), "p", somebody.Identifier, o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
	}
	standing(t, standingRows(time.Hour), func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) { // one instance that counts alone
		limitTo(t, e, 20)
		taken := takeUntil(t, e, 100, isDenied)
		time.Sleep(2 * time.Minute)
		if taken += takeUntil(t, e, 1100, isDenied); taken != 1000 {
			t.Errorf("%d admitted under an override to 20 and after it, want 1000", taken)
		}
	})
	bubble(t, "a larger one that ends", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		other, e := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, other)
		limitTo(t, other, 3000)
		for range 990 {
			mustTake(t, other)
		}
		time.Sleep(2 * time.Minute)
		running(t, e)
		stand(t, e)
		if taken := takeUntil(t, e, 100, isDenied) + takeUntil(t, other, 100, isDenied); taken > 10 {
			t.Errorf("%d admitted beside 990", taken)
		}
	})
	bubble(t, "a larger one beside an allowance", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		running(t, other)
		stand(t, e)
		limitTo(t, other, 3000)
		for range 990 {
			mustTake(t, other)
		}
		time.Sleep(2 * time.Minute)
		if taken := takeUntil(t, e, 100, isDenied) + takeUntil(t, other, 100, isDenied); taken > 10 {
			t.Errorf("%d admitted beside 990", taken)
		}
	})
	standing(t, standingRows(time.Hour), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		for range allowance {
			mustTake(t, e)
		}
		running(t, other)
		limitTo(t, e, 10)
		for _, of := range []*limiter.Engine{e, other} {
			if d := mustTake(t, of); d.Allowed {
				t.Errorf("%+v: %d were handed out before", d, allowance)
			}
		}
	})
}

// Allowances of processes that are gone, and of those that found too many, deny no more than
// a fourth of the limit.
func TestAllowancesOfManyStarts(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		for range 100 {
			ctx, stop := context.WithCancel(t.Context())
			e := toldEngine(t, store, policy)
			ended := make(chan struct{})
			go func() { defer close(ended); _ = e.Run(ctx) }()
			stand(t, e)
			stop()
			<-ended
		}
		other := toldEngine(t, store, policy)
		if taken := takeUntil(t, other, 1100, isDenied); taken < 750 {
			t.Errorf("%d admitted beside what is gone", taken)
		}
	})
}

// Beside allowances of another limit, by which other keys were noted, there are none.
func TestNoAllowanceBesideThoseOfAnotherLimit(t *testing.T) {
	larger := standingRows(time.Minute)
	larger.Limits[0].Limit = 2000
	standing(t, larger, func(t *testing.T, store *fakeStore, _, _ *limiter.Engine) {
		e := toldEngine(t, store, standingRows(time.Minute))
		running(t, e)
		stand(t, e)
		for _, want := range []bool{false, false, false, true} { // those of the window before count as well
			if d := takeOf(t, e, limiter.Identifier(time.Now().String())); d.Leased != want {
				t.Errorf("%v: %+v: want one of an allowance: %v", time.Now(), d, want)
			}
			nearEnd(-10 * time.Millisecond)
		}
	})
}

// An allowance that was forgotten is not made again: nobody knows what was spent of it.
func TestAllowanceIsNotMadeTwice(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Minute)
		var ahead atomic.Int64
		e := limiter.New(store, &limiter.Options{
			ClockTolerance: tolerance, StoreTimeout: timeout, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
		running(t, e)
		stand(t, e)
		if taken := takeUntil(t, e, 100, notLeased); taken != allowance {
			t.Fatalf("%d units", taken)
		}
		ahead.Store(int64(10 * time.Minute))
		stand(t, e)
		ahead.Store(0)
		stand(t, e)
		if d := takeOf(t, e, "somebody else"); d.Leased {
			t.Errorf("%+v: of an allowance that was made again", d)
		}
	})
}

// A process that finds too many high keys says that all are, and nobody makes an allowance.
func TestTooManyHighKeys(t *testing.T) {
	const some = 1 << 12
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		stand(t, e)
		for i := range some + 100 {
			d := limiter.Demand{Policy: "p", Identifier: limiter.Identifier(strconv.Itoa(i)), Cost: 600}
			if _, err := other.Take(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		notes := 0
		store.set(func() {
			for i := range store.writes {
				if isNote(&store.writes[i]) {
					notes++
				}
			}
		})
		if notes != some+1 {
			t.Errorf("%d notes, want %d and that all are high", notes, some)
		}
		last := limiter.Demand{Policy: "p", Identifier: limiter.Identifier(strconv.Itoa(some + 50))}
		taken := 600
		for _, of := range []*limiter.Engine{other, e} {
			for d, err := of.Take(t.Context(), last); d.Allowed; d, err = of.Take(t.Context(), last) {
				if err != nil {
					t.Fatal(err)
				}
				taken++
			}
		}
		if taken != 1000 {
			t.Errorf("%d admitted", taken)
		}
		late := toldEngine(t, store, policy)
		running(t, late)
		stand(t, late)
		if d := takeOf(t, late, "somebody else"); d.Leased {
			t.Errorf("%+v: by an allowance where all keys are high", d)
		}
	})
}

// Counts under standing leases are apart from others': an instance that does not know of
// allowances would count past them.
func TestStandingLeasesCountApart(t *testing.T) {
	store := newFakeStore()
	one, other := toldEngine(t, store, earlyRows(time.Hour)), toldEngine(t, store, standingRows(time.Hour))
	first, _ := one.KeyOf("p", "somebody")
	second, err := other.KeyOf("p", "somebody")
	if err != nil || first == second {
		t.Errorf("one key, %v, %v", first, err)
	}
}

// What standing leases can't be made of is refused.
func TestStandingLeasesNeedRowsAndOneLimit(t *testing.T) {
	for name, change := range map[string]func(*limiter.Policy){
		"counters": func(p *limiter.Policy) { p.Counting = limiter.CountingCounters },
		"buckets":  func(p *limiter.Policy) { p.Limits[0].Algorithm = "sliding-window" },
		"two limits": func(p *limiter.Policy) {
			p.Limits = append(p.Limits, limiter.Limit{Name: "day", Algorithm: "fixed-window", Limit: 5000, Window: 24 * time.Hour})
		},
		"a log and more": func(p *limiter.Policy) {
			p.Limits = append(p.Limits, limiter.Limit{Algorithm: "sliding-log", Limit: 10, Window: time.Hour})
		},
		"a log of which denied attempts count": func(p *limiter.Policy) {
			p.Limits[0].Algorithm, p.Count = "sliding-log", limiter.CountAll
		},
		"a serial log": func(p *limiter.Policy) {
			p.Limits[0].Algorithm, p.Guarantee, p.Counting = "sliding-log", limiter.GuaranteeSerial, ""
		},
		"denied attempts of local": func(p *limiter.Policy) { p.Guarantee, p.Count = limiter.GuaranteeLocal, limiter.CountAll },
	} {
		p := standingRows(time.Hour)
		change(&p)
		found := p.Problems()
		if len(found) != 1 || found[0].Path != "leases" || !strings.Contains(found[0].Message, "standing") {
			t.Errorf("%s: %v", name, found)
		}
	}
	for _, p := range append(standingInMemory(), standingRows(time.Hour), standingLog()) {
		if found := p.Problems(); len(found) > 0 {
			t.Error(found)
		}
	}
}

// What is spent of a key is never taken for less, and seldom for more.
func TestSpentIsNeverTakenForLess(t *testing.T) {
	spent, truly := new(limiter.Spent), make(map[limiter.Key]int64)
	keys := make([]limiter.Key, 20_000)
	for i := range keys {
		var sum [limiter.KeySize]byte
		for j := range sum {
			sum[j] = byte(rand.Uint32())
		}
		keys[i] = limiter.KeyFrom(sum)
	}
	for range 200_000 {
		key, cost, most := keys[rand.IntN(len(keys))], 1+rand.Int64N(4), 5+rand.Int64N(96)
		if spent.Add(key, cost, most) {
			if truly[key] += cost; truly[key] > most {
				t.Fatalf("%d spent of %d", truly[key], most)
			}
		}
	}
	more := 0
	for key, n := range truly {
		switch of := spent.Of(key); {
		case of < n:
			t.Fatalf("%d is taken for %d", n, of)
		case of > n:
			more++
		}
	}
	if more > len(keys)/50 {
		t.Errorf("of %d of %d keys more is taken to be spent", more, len(keys))
	}
}
