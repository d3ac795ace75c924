package limiter_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

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

// put has engines go by a version, unless they have a later one.
func (r *ring) put(t *testing.T, version int64, engines ...int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
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

// TestCallsAreDecidedByTheVersionOfTheInstanceThatIsAsked holds that an owner with another version, or without the policy,
// decides by the asker's, and counts once.
func TestCallsAreDecidedByTheVersionOfTheInstanceThatIsAsked(t *testing.T) {
	for _, op := range []count.Op{count.OpTake, count.OpRecord, count.OpCheck} {
		for _, policies := range []string{"a", "ab", "ac"} {
			for _, versions := range [][2]int64{{1, 2}, {2, 1}, {1, 0}} {
				t.Run(fmt.Sprint(op, policies, versions), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRing(t, 2)
						r.put(t, versions[0], 0)
						r.put(t, versions[1], 1)
						call := &limiter.Call{Op: op}
						for i, name := range policies {
							id := r.ownedBy(t, 1-i, string(name), 0)
							call.Demands = append(call.Demands, limiter.Demand{Policy: string(name), Identifier: id})
						}
						a, err := r.engines[0].Do(t.Context(), call)
						if err != nil || !a.Allowed {
							t.Fatalf("%+v, %v", a, err)
						}
						if by := decidedBy(t, &a); by != versions[0] {
							t.Errorf("decided by version %d, want %d", by, versions[0])
						}
						used := int64(1)
						if op == count.OpCheck {
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
	}
}

// TestCallsWhileVersionsChange makes calls of several demands on three engines that come to have new versions at different
// moments: none fails, each is decided by one version and counts once, and an owner is sent and reads only what is new.
func TestCallsWhileVersionsChange(t *testing.T) {
	const versions = 12
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := newRing(t, 3)
			r.put(t, 1, 0, 1, 2)
			ids := map[string]keys.Identifier{"a": r.ownedBy(t, 1, "a", 0), "b": r.ownedBy(t, 2, "b", 0)}
			var sent atomic.Int64 // definitions
			r.meet = func(c *demand.Charge) (time.Duration, bool) {
				if c.Definition != nil && len(c.Definition.Text) > 0 {
					sent.Add(1)
				}
				return time.Millisecond, false
			}
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
			for v := int64(2); v < versions; v++ {
				r.put(t, v, rng.IntN(3))
				time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
			}
			all.Wait()
			reads, _ := r.store.counts()
			time.Sleep(time.Minute)
			r.stop()
			for name, id := range ids {
				if got := r.usedOf(t, name, id); got != admitted.Load() {
					t.Errorf("seed %d: %s used %d, want %d", seed, name, got, admitted.Load())
				}
			}
			if n := sent.Load(); n > 4*versions { // by two askers of each key at a time
				t.Errorf("seed %d: %d definitions were sent", seed, n)
			}
			if reads > 3*versions { // each version admits more than those before, so each key is read once for it
				t.Errorf("seed %d: %d reads", seed, reads)
			}
		})
	}
}

// TestOverridesAreDecidedByOwners holds that an owner decides from memory under an override that it has not heard of, in turn
// with calls without it: nobody passes the larger limit, no call reads, and one message carries a call.
func TestOverridesAreDecidedByOwners(t *testing.T) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		for _, algorithm := range writtenFirst() {
			for _, units := range []int64{2, 9} {
				t.Run(fmt.Sprint(guarantee, algorithm, units), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := policyOf(algorithm, 5, time.Hour)
						p.Guarantee = guarantee
						r := newRing(t, 2, p)
						d := limiter.Demand{Policy: p.Name, Identifier: r.ownedBy(t, 1, p.Name, 0)}
						var messages, definitions atomic.Int64
						r.meet = func(c *demand.Charge) (time.Duration, bool) {
							messages.Add(1)
							if c.Definition != nil && len(c.Definition.Text) > 0 {
								definitions.Add(1)
							}
							return 0, false
						}
						asker, key := r.engines[0], p.WithDefaults().Limits[0].Name
						if _, err := asker.Overrides.Set(t.Context(), p.Name, d.Identifier, demand.Override{
							Kind: policy.OverrideLimits, Until: store.InstantOf(time.Now().Add(time.Hour)),
							Limits: []demand.LimitOverride{{Name: key, Limit: units}},
						}); err != nil {
							t.Fatal(err)
						}
						admitted, calls, cold := int64(0), int64(0), 0
						for i := range 24 {
							got, err := r.engines[i%2].Take(t.Context(), d)
							if err != nil {
								t.Fatal(err)
							}
							if got.Allowed {
								admitted++
							}
							if i%2 == 0 {
								calls++
							}
							if i == 1 {
								cold, _ = r.store.counts()
							}
							time.Sleep(10 * time.Millisecond)
						}
						if admitted != max(5, units) {
							t.Errorf("%d admitted, want %d", admitted, max(5, units))
						}
						if reads, _ := r.store.counts(); reads != cold {
							t.Errorf("%d reads in the first two calls, and then %d", cold, reads-cold)
						}
						if messages.Load() > calls+1 || definitions.Load() != 1 {
							t.Errorf("%d messages and %d definitions for %d calls", messages.Load(), definitions.Load(), calls)
						}
					})
				})
			}
		}
	}
}

// TestCallsWithOtherKeysUseNoMemory holds that an owner reads all keys of a call, which have units of one identifier while
// the hash key changes, though it remembers one of them.
func TestCallsWithOtherKeysUseNoMemory(t *testing.T) {
	e := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{}, logOf(2))
	earlier, now := store.KeyFrom([store.KeySize]byte{1}), store.KeyFrom([store.KeySize]byte{2})
	for i, of := range []struct {
		key  store.Key
		old  []store.Key
		want bool
	}{{earlier, nil, true}, {now, nil, true}, {now, []store.Key{earlier}, false}} {
		c := takeFor(limiter.DefinitionOf(e, "log"))
		c.Key, c.OldKeys = of.key, of.old
		if err := e.DecideForPeer(t.Context(), c); err != nil || c.Decision.WouldAllow != of.want {
			t.Errorf("take %d is allowed: %t, %v; want %t", i, c.Decision.WouldAllow, err, of.want)
		}
	}
}

// takeFor returns a take of a unit of no key by d.
func takeFor(d *demand.Definition) *demand.Charge {
	return &demand.Charge{Op: count.OpTake, Cost: 1, Definition: d}
}

// TestOwnersNeverDecideByAnotherDefinition than the call names, whatever text is sent with it.
func TestOwnersNeverDecideByAnotherDefinition(t *testing.T) {
	e := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{}, logOf(2))
	d := limiter.DefinitionOf(e, "log")
	d.Print++
	known := string(d.Text)
	d.Text = nil
	if err := e.DecideForPeer(t.Context(), takeFor(d)); !errors.Is(err, owner.ErrUndefined) {
		t.Errorf("a print that is not known: %v", err)
	}
	for _, text := range []string{"{", `{"Name":"log"}`, known} {
		d.Text = []byte(text)
		failed := (*count.StoreError)(nil)
		if err := e.DecideForPeer(t.Context(), takeFor(d)); !errors.As(err, &failed) || failed.Recorded != count.RecordedNo {
			t.Errorf("the definition %s: %v", text, err)
		}
	}
}

// TestDefinitionsAreReadAsTheyAreSent by an owner without the policy, for all algorithms and guarantees; they have no
// identifiers.
func TestDefinitionsAreReadAsTheyAreSent(t *testing.T) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		for _, algorithm := range policy.Algorithms() {
			p := policyOf(algorithm, 5, time.Hour)
			p.Guarantee, p.Description = guarantee, "of people"
			p.Limits[0].By = map[string]int64{"somebody": 3}
			e := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{}, p)
			d := limiter.DefinitionOf(e, p.Name)
			if bytes.Contains(d.Text, []byte("somebody")) {
				t.Errorf("an identifier is sent: %s", d.Text)
			}
			other := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{}, logOf(2))
			c := takeFor(d)
			if err := other.DecideForPeer(t.Context(), c); err != nil || !c.Decision.WouldAllow || c.Decision.Remaining != 4 {
				t.Errorf("%s of %s: %+v, %v", guarantee, algorithm, c.Decision, err)
			}
		}
	}
}

// FuzzDefinition sends an owner whatever text as a definition: it decides only by one that has the print.
func FuzzDefinition(f *testing.F) {
	sent := ownerOf(f, newFakeStore(), ownsAll(), limiter.Options{}, logOf(2))
	known := limiter.DefinitionOf(sent, "log")
	f.Add([]byte("{}"), known.Print)
	f.Add(known.Text, known.Print)
	e := ownerOf(f, newFakeStore(), ownsAll(), limiter.Options{}, policyOf("fixed-window", 3, time.Hour))
	f.Fuzz(func(t *testing.T, text []byte, print uint64) {
		d := &demand.Definition{Policy: "log", Print: print, Text: text}
		if err := e.DecideForPeer(t.Context(), &demand.Charge{Op: count.OpCheck, Cost: 1, Definition: d}); err != nil {
			return
		}
		d.Text = nil // it is known now, and is what any instance would send
		if err := e.DecideForPeer(t.Context(), &demand.Charge{Op: count.OpCheck, Cost: 1, Definition: d}); err != nil {
			t.Errorf("a definition that was read is not known: %v", err)
		}
	})
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
