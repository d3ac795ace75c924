package limiter_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// takesOf has e take until it is denied or fails, most times at most, and returns how many were admitted.
func takesOf(t *testing.T, e *limiter.Engine, most int) (admitted int, err error) {
	t.Helper()
	for ; admitted < most; admitted++ {
		d, err := e.Take(t.Context(), limiter.Demand{Policy: "fixed-window", Identifier: "id"})
		if err != nil || !d.Allowed {
			return admitted, err
		}
	}
	return admitted, nil
}

// owning returns an engine that owns all keys, with one fixed window of an hour in rows.
func owning(t *testing.T, s store.Store, term owner.Term, limit int64) *limiter.Engine {
	t.Helper()
	return asking(t, s, &owners{term: term}, limit)
}

// asking returns an engine with these owners, and the same policy.
func asking(t *testing.T, s store.Store, o demand.Owners, limit int64) *limiter.Engine {
	t.Helper()
	p := inRows("fixed-window", limit, time.Hour)
	p.Name = "fixed-window"
	return ownerOf(t, s, o, limiter.Options{StoreTimeout: timeout}, p)
}

// TestUnitsAheadSpareWrites holds that a key with many calls is rarely written, and that its limit stays the same: the owner
// admits all of it, and the owner and the next one together admit no more.
func TestUnitsAheadSpareWrites(t *testing.T) {
	const limit, first = 1000, 500
	for _, c := range []struct {
		ends  string
		least int // for the next owner
	}{{"not", 0}, {"by a crash", limit - first - limit/100}, {"by an ordinary stop", limit - first}} {
		t.Run(c.ends, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeStore()
				e := owning(t, s, &tenancy{}, limit)
				took := first
				if c.least == 0 {
					took = limit
				}
				if n, err := takesOf(t, e, took); n != took || err != nil {
					t.Fatalf("%d of %d takes are admitted: %v", n, took, err)
				}
				if _, writes := s.counts(); writes > took/8 {
					t.Errorf("%d takes made %d writes, want an eighth at most", took, writes)
				}
				if c.ends == "by an ordinary stop" {
					e.Flush(t.Context())
				}
				n, err := takesOf(t, owning(t, s, &sole{}, limit), limit)
				if err != nil || n < c.least || n > limit-took {
					t.Errorf("the next owner admits %d, want %d to %d: %v", n, c.least, limit-took, err)
				}
			})
		})
	}
}

// TestReadsHaveNothingAhead holds that an owner which reads its key finds the units that are counted, and no more.
func TestReadsHaveNothingAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := owning(t, newFakeStore(), &tenancy{}, 1000)
		if n, err := takesOf(t, e, 900); n != 900 || err != nil {
			t.Fatalf("%d are admitted: %v", n, err)
		}
		key, err := e.KeyOf("fixed-window", "id")
		must(t, err)
		e.Forget(key)
		d, err := e.Check(t.Context(), limiter.Demand{Policy: "fixed-window", Identifier: "id"})
		if err != nil || d.Used != 900 {
			t.Errorf("%d used, %v; want 900", d.Used, err)
		}
	})
}

// TestUnitsAheadAreAcknowledged holds that no call is admitted by units that the store may not have, or under a term that has
// ended.
func TestUnitsAheadAreAcknowledged(t *testing.T) {
	for _, broken := range []string{"no answer", "a term that is over"} {
		t.Run(broken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, term := newFakeStore(), &tenancy{}
				e := owning(t, s, term, 1000)
				if n, err := takesOf(t, e, 100); n != 100 || err != nil {
					t.Fatalf("%d of 100 takes are admitted: %v", n, err)
				}
				if broken == "no answer" {
					s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
					spend(t, e)
				} else {
					term.set(func() { term.fails = store.ErrUnavailable })
				}
				for range 50 {
					if n, _ := takesOf(t, e, 1); n > 0 {
						t.Fatal("one is admitted")
					}
				}
			})
		})
	}
}

// spend takes what is stored ahead, until a take fails.
func spend(t *testing.T, e *limiter.Engine) {
	t.Helper()
	if n, err := takesOf(t, e, 100); n > 10 || err == nil {
		t.Fatalf("%d takes are admitted though nothing is written: %v", n, err)
	}
}
