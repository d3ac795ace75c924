package limiter_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// awaitPolicies returns what has an engine of r read a version that it can read, which takes a while.
func (r *ring) awaitPolicies(engine int) func(context.Context, int64) error {
	return func(_ context.Context, version int64) error {
		time.Sleep(5 * time.Millisecond)
		r.mu.Lock()
		defer r.mu.Unlock()
		latest := version
		for v := range r.versions {
			latest = max(latest, v)
		}
		if r.versions[latest] == nil {
			return errors.New("it can't be read")
		}
		if is, _ := r.engines[engine].Version(); is >= latest {
			return nil
		}
		return r.engines[engine].SetVersion(latest, r.versions[latest])
	}
}

// versionOf returns policies a, b and c whose limits tell their version. c counts what is denied, too.
func versionOf(version int64) (all []policy.Policy) {
	for _, name := range []string{"a", "b", "c"} {
		p := oneLimit(name, "sliding-log", 1000+version)
		if name == "c" {
			p.Count = policy.CountAll
		}
		all = append(all, p)
	}
	return all
}

// put has engines go by a version, which others can read from then on if they may.
func (r *ring) put(t *testing.T, version int64, read bool, engines ...int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if read {
		if r.versions == nil {
			r.versions = make(map[int64][]policy.Policy)
		}
		r.versions[version] = versionOf(version)
	}
	for _, i := range engines {
		if is, _ := r.engines[i].Version(); is >= version {
			continue
		}
		if err := r.engines[i].SetVersion(version, versionOf(version)); err != nil {
			t.Error(err)
		}
	}
}

// decidedBy returns which version a was decided by.
func decidedBy(t *testing.T, a *limiter.Answer) int64 {
	t.Helper()
	all := a.Demands
	if all == nil {
		all = []count.Decision{a.Decision}
	}
	by := all[0].Limits()[0].Limit.Limit - 1000
	for i := range all {
		l := all[i].Limits()[0]
		if l.Limit.Limit-1000 != by || l.Used+l.Remaining != l.Limit.Limit {
			t.Errorf("demand %d was decided by a mixture: limit %d, used %d, remaining %d, where the first one's version is %d",
				i, l.Limit.Limit, l.Used, l.Remaining, by)
		}
	}
	return by
}

// TestCallsAreDecidedAnewByALaterVersion that an owner has, or by the asker's where an owner is behind; by the asker's, too,
// where the later one can't be read or the call can't be taken back.
func TestCallsAreDecidedAnewByALaterVersion(t *testing.T) {
	for _, c := range []struct {
		name      string
		asker     int64 // version of engine 0, which is asked
		owner     int64 // version of engine 1, which owns the first demand; engine 0 owns the second
		read      bool  // the later version can be read
		op        count.Op
		policies  string
		decidedBy int64
		after     [2]int64 // versions of both
	}{
		{"the owner is ahead", 1, 2, true, count.OpTake, "ab", 2, [2]int64{2, 2}},
		{"of one demand", 1, 2, true, count.OpTake, "a", 2, [2]int64{2, 2}},
		{"of a record", 1, 2, true, count.OpRecord, "a", 2, [2]int64{2, 2}},
		{"of a check", 1, 2, true, count.OpCheck, "ab", 2, [2]int64{2, 2}},
		{"the owner is behind", 2, 1, true, count.OpTake, "ab", 2, [2]int64{2, 2}},
		{"the asker can't read it", 1, 2, false, count.OpTake, "ab", 1, [2]int64{1, 2}},
		{"the owner can't read it", 2, 1, false, count.OpTake, "ab", 2, [2]int64{2, 1}},
		{"what counts in any case", 1, 2, true, count.OpTake, "ac", 1, [2]int64{2, 2}},
		{"several records", 1, 2, true, count.OpRecord, "ab", 1, [2]int64{2, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRing(t, 2)
				r.put(t, c.asker, false, 0)
				r.put(t, c.owner, false, 1)
				r.put(t, 2, c.read)
				call := &limiter.Call{Op: c.op}
				for i, name := range c.policies {
					id := r.ownedBy(t, 1-i, string(name), 0)
					call.Demands = append(call.Demands, limiter.Demand{Policy: string(name), Identifier: id})
				}
				a, err := r.engines[0].Do(t.Context(), call)
				if err != nil || !a.Allowed {
					t.Fatalf("%+v, %v", a, err)
				}
				if by := decidedBy(t, &a); by != c.decidedBy {
					t.Errorf("decided by version %d, want %d", by, c.decidedBy)
				}
				for i, want := range c.after {
					if is, _ := r.engines[i].Version(); is != want {
						t.Errorf("engine %d goes by version %d, want %d", i, is, want)
					}
				}
				used := int64(1)
				if c.op == count.OpCheck {
					used = 0
				}
				time.Sleep(time.Minute)
				r.stop()
				for _, d := range call.Demands {
					if got := r.usedOf(t, d.Policy, d.Identifier); got != used {
						t.Errorf("%s used %d, want %d", d.Policy, got, used)
					}
				}
			})
		})
	}
}

// TestCallsWhileVersionsChange makes calls of several demands on three engines that come to have new versions at different
// moments: each is decided by one, and counts once.
func TestCallsWhileVersionsChange(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := newRing(t, 3)
			r.put(t, 1, true, 0, 1, 2)
			ids := map[string]keys.Identifier{"a": r.ownedBy(t, 1, "a", 0), "b": r.ownedBy(t, 2, "b", 0)}
			var admitted atomic.Int64
			var all sync.WaitGroup
			for caller := range 6 {
				rng := rand.New(rand.NewPCG(seed, uint64(caller)))
				all.Go(func() {
					for range 30 {
						call := callOf(limiter.Demand{Policy: "a", Identifier: ids["a"]}, limiter.Demand{Policy: "b", Identifier: ids["b"]})
						a, err := r.engines[caller%3].Do(t.Context(), call)
						if err != nil {
							t.Errorf("seed %d: %v", seed, err)
							continue
						}
						decidedBy(t, &a)
						admitted.Add(1)
						time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
					}
				})
			}
			rng := rand.New(rand.NewPCG(seed, 100))
			for v := int64(2); v < 12; v++ {
				r.put(t, v, true, rng.IntN(3))
				time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			}
			all.Wait()
			time.Sleep(time.Minute)
			r.stop()
			for name, id := range ids {
				if got := r.usedOf(t, name, id); got != admitted.Load() {
					t.Errorf("seed %d: %s used %d, want %d", seed, name, got, admitted.Load())
				}
			}
		})
	}
}

// TestNobodyDecidesWithoutPolicies before an engine was given any: that is no mistake of the
// caller.
func TestNobodyDecidesWithoutPolicies(t *testing.T) {
	e := limiter.New(newFakeStore(), nil)
	_, err := e.Take(t.Context(), limiter.Demand{Policy: "a", Identifier: "b"})
	failed := (*count.StoreError)(nil)
	if !errors.As(err, &failed) || failed.Recorded != count.RecordedNo {
		t.Errorf("a take: %v", err)
	}
	if err := e.SetPolicies(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Take(t.Context(), limiter.Demand{Policy: "a", Identifier: "b"}); !errors.Is(err, limiter.ErrUnknownPolicy) {
		t.Errorf("a take with no policy of the name: %v", err)
	}
}

// TestDemandsOfACallAreUnderOneVersion whatever comes into force while they are read.
func TestDemandsOfACallAreUnderOneVersion(t *testing.T) {
	var e *limiter.Engine
	swap := func() {}
	e = limiter.New(newFakeStore(), &limiter.Options{
		Identifiers: func(*policy.Policy) (policy.ReadIdentifier, error) {
			return func(id string) (string, policy.Found, error) { swap(); return id, policy.Found{}, nil }, nil
		},
	})
	put := func(v int64) {
		all := versionOf(v)
		for i := range all {
			all[i].Normalize = policy.Normalize{Form: policy.FormLowercase}
		}
		if err := e.SetVersion(v, all); err != nil {
			t.Fatal(err)
		}
	}
	put(1)
	swap = func() { swap = func() {}; put(2) }
	a, err := e.Do(t.Context(), callOf(limiter.Demand{Policy: "a", Identifier: "x"}, limiter.Demand{Policy: "b", Identifier: "x"}))
	if err != nil || decidedBy(t, &a) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	if is, _ := e.Version(); is != 2 {
		t.Errorf("version %d is in force", is)
	}
}
