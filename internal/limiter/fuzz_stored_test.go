package limiter

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// fuzzNow is when fuzz targets decide.
const fuzzNow store.Instant = 1_772_366_400_000

// FuzzUsage reads what may be kept of an idempotency key: it is refused, or can be
// answered.
func FuzzUsage(f *testing.F) {
	d := count.Decision{Policy: &policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 3, Window: time.Minute}}}}
	d.SetLimits([]count.LimitDecision{{Limit: &d.Policy.Limits[0], Verdict: count.Verdict{Remaining: 2}}})
	d.Recorded = count.RecordedYes
	for _, u := range []usage{
		{State: usagePending, Fingerprints: [][]byte{{1}}, Started: fuzzNow, IDs: []store.EventID{{2}}, Gone: []store.EventID{{3}}},
		{State: usageFree, Fingerprints: [][]byte{{1}, {2}}},
		{State: usageAnswered, Answer: storedOf(&Answer{Decision: d, Receipt: "r"})},
		{State: usageAnswered, Answer: storedOf(&Answer{Decision: d, Demands: []count.Decision{d, d}})},
	} {
		value, err := json.Marshal(u)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(value)
	}
	for _, seed := range []string{`{}`, `null`, `{"State":"answered"}`, `{"State":"answered","Answer":{"Demands":[{"Tightest":7}]}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		known := new(usage)
		if err := json.Unmarshal(value, known); err != nil || known.State != usageAnswered {
			return
		}
		a := known.Answer.answer()
		for _, d := range append(a.Demands, a.Decision) {
			_ = d.TightestLimit()
		}
		again := storedOf(&a)
		if !reflect.DeepEqual(again.answer(), a) {
			t.Fatalf("%s: %+v, and kept again %+v", value, a, again.answer())
		}
	})
}

// quiet is a feed that tells nothing.
type quiet struct{}

func (quiet) Publish(context.Context, *store.Change) error                        { return nil }
func (quiet) Changes(context.Context, *store.ChangeQuery) ([]store.Change, error) { return nil, nil }
func (quiet) Overrides(context.Context, policy.Level) ([]store.Change, error)     { return nil, nil }

// FuzzNews acts on any change that a feed may tell of: what is known of the key is
// bounded, decisions are made, and a reset ends whatever it was.
func FuzzNews(f *testing.F) {
	f.Add(string(store.ChangeBlock), int64(fuzzNow)-10, int64(fuzzNow)+60_000, 1, int64(time.Minute))
	f.Add(string(store.ChangeReset), int64(fuzzNow), int64(0), 0, int64(0))
	f.Add(string(store.ChangeRefund), int64(fuzzNow), int64(0), 0, int64(0))
	f.Add(string(store.ChangeBlock), int64(fuzzNow), int64(1)<<62, -1, int64(-1))
	f.Add("later", int64(-1), int64(1), 1<<62, int64(1)<<62)
	o := Options{Now: fuzzNow.Time, Feed: quiet{}}
	p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 1, Window: time.Minute}},
		BlockFor: time.Minute, BlockFactor: 2, BlockMax: time.Hour}
	f.Fuzz(func(t *testing.T, kind string, made, until int64, strikes int, ttl int64) {
		e := New(nil, &o)
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		plan, _, _, err := e.plans.planOf("p", "i")
		if err != nil {
			t.Fatal(err)
		}
		c := demand.Charge{Target: plan.Of("i"), Op: count.OpTake, Cost: 1}
		id := e.ids.Next(store.Instant(made))
		e.heard(t.Context(), &store.Change{
			ID: id, Kind: store.ChangeKind(kind), Key: c.Key, Until: store.Instant(until), Strikes: strikes, TTL: time.Duration(ttl),
		})
		blocked, d := e.judge.DecideUnasked(&c), &c.Decision
		if blocked && (d.Allowed || d.RetryAfter <= 0 || store.ChangeKind(kind) != store.ChangeBlock || store.Instant(until) <= fuzzNow) {
			t.Fatalf("%s until %d: %+v", kind, until, d.Verdict)
		}
		if next, _ := e.judge.Blocks.Punish(&p, c.Key, c.OldKeys, fuzzNow, fuzzNow); !blocked && next.Until.Sub(fuzzNow) > p.BlockMax {
			t.Fatalf("%s of %d strikes: a block until %d", kind, strikes, next.Until)
		}
		reset := store.Change{ID: e.ids.Next(max(fuzzNow, id.Instant())), Kind: store.ChangeReset, Key: c.Key}
		if e.heard(t.Context(), &reset); e.BlocksKnown() != 0 {
			t.Fatalf("a block made at %d outlives a reset", made)
		}
	})
}

// FuzzOverrideNews acts on any override that a feed may tell of: decisions are made, by no
// limit that a policy could not have, and the end of it ends it.
func FuzzOverrideNews(f *testing.F) {
	f.Add(int64(fuzzNow), int64(fuzzNow)+60_000, `{"policy":"p","kind":"limits","limits":[{"name":"l","limit":5}]}`)
	f.Add(int64(fuzzNow), int64(fuzzNow)+60_000, `{"kind":"limits","limits":[{"name":"l","limit":-5,"burst":7},{"name":"l"}]}`)
	f.Add(int64(fuzzNow), int64(1)<<62, `{"kind":"allow"}`)
	f.Add(int64(-1), int64(fuzzNow)+1, `{"kind":"block","by":"\u0000"}`)
	f.Add(int64(0), int64(0), "")
	o := Options{Now: fuzzNow.Time, Feed: quiet{}, Keyer: keys.Keyer{Namespace: "n"}}
	p := policy.Policy{Name: "p", Limits: []policy.Limit{
		{Name: "l", Algorithm: "sliding-log", Limit: 1, Window: time.Minute},
		{Name: "b", Algorithm: "fixed-window", Limit: 1, Window: time.Minute},
	}}
	f.Fuzz(func(t *testing.T, made, until int64, details string) {
		e := New(nil, &o)
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		d := Demand{Policy: "p", Identifier: "i"}
		key, _ := e.KeyOf(d.Policy, d.Identifier)
		id := e.ids.Next(store.Instant(made))
		e.heard(t.Context(), &store.Change{ID: id, Kind: store.ChangeOverride, Key: key, Until: store.Instant(until), Details: details})
		var c demand.Charge
		if _, err := e.charger.charge(e.plans.inForce.Load(), &c, count.OpTake, &d); err == nil {
			if found := c.Plan.Limits[0]; found.Limit < 0 || found.Limit > policy.MaxLogLimit {
				t.Fatalf("%q: %+v", details, found)
			}
			if e.judge.DecideUnasked(&c) && store.Instant(until) <= fuzzNow {
				t.Fatalf("%q is in force after its end", details)
			}
		}
		end := store.Change{ID: e.ids.Next(max(fuzzNow, id.Instant()+1)), Kind: store.ChangeOverride, Key: key}
		if e.heard(t.Context(), &end); len(e.Overrides.All()) > 0 {
			t.Fatalf("%q outlives its end", details)
		}
	})
}
