package limiter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// everyKind has a limit of each algorithm.
var everyKind = policy.Policy{Name: "p", Guarantee: policy.GuaranteeSerial, Limits: []policy.Limit{
	{Algorithm: "sliding-log", Limit: 3, Window: time.Minute},
	{Algorithm: "fixed-window", Limit: 3, Window: time.Minute},
	{Algorithm: "fixed-window", Limit: 3, Calendar: policy.CalendarDay, Timezone: "Europe/Berlin"},
	{Algorithm: "sliding-window", Limit: 3, Window: time.Minute},
	{Algorithm: "sliding-tail", Limit: 3, Window: time.Minute},
	{Algorithm: "token-bucket", Limit: 3, Window: time.Minute},
	{Algorithm: "leaky-bucket", Limit: 3, Window: time.Minute},
}}

// fuzzNow is when fuzz targets decide.
const fuzzNow store.Instant = 1_772_366_400_000

// serialPlan returns everyKind as instances compare and set it.
func serialPlan() (*plan, *Options) {
	o := Options{}.withDefaults()
	return newPlan(everyKind, &o, false), &o
}

// FuzzCell reads cells as a store may return them: one is refused, or what it says
// can be decided on, and is the same once it is written again.
func FuzzCell(f *testing.F) {
	p, o := serialPlan()
	s := store.State{Cell: store.Cell{Version: store.EventID{1}}, Logs: make([]store.Log, 1)}
	for range 2 {
		p.Decide(new(count.Decision), &s, count.OpTake, store.EventID{2}, fuzzNow, 1)
	}
	full := p.shut(nil, &s, &chain{newest: fuzzNow, versions: bytes.Repeat([]byte{3}, versionSize)}, store.EventID{4}, fuzzNow, o).Value
	f.Add(full)
	f.Add(full[:len(full)/2])
	f.Add([]byte{cellFormat})
	f.Add([]byte{cellFormat + 1})
	f.Add(append([]byte{cellFormat, 0, 1}, 0xff, 0xff, 0xff, 0xff, 0x0f))
	f.Fuzz(func(t *testing.T, value []byte) {
		s := store.State{Cell: store.Cell{Version: store.EventID{1}, Value: value}, Logs: make([]store.Log, 1)}
		c, err := p.open(&s)
		if err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("%x: %v", value, err)
			}
			return
		}
		if items := c.versions.len() + len(s.Levels) + len(s.Counts); items > len(value) {
			t.Fatalf("%d bytes became %d items", len(value), items)
		}
		checkDecisions(t, p, &s)
		w := p.shut(nil, &s, &c, store.EventID{9}, fuzzNow, o)
		again := store.State{Cell: store.Cell{Version: w.Version, Value: w.Value}}
		past, err := p.open(&again)
		if err != nil || past.versions.at(0) != w.Version || past.newest != max(c.newest, fuzzNow) {
			t.Fatalf("%x was written as %x: %+v, %v", value, w.Value, past, err)
		}
		live := slices.DeleteFunc(slices.Clone(s.Levels), func(b store.Bucket) bool { return !p.isLive(&b, &s, fuzzNow) })
		if again.Reset != s.Reset || !slices.Equal(again.Levels, live) ||
			!slices.Equal(again.Counts, p.liveCounts(&s, fuzzNow)) {
			t.Fatalf("%x was written as %x: %+v, want %+v", value, w.Value, again, s)
		}
		if w.TTL < p.LongestWindow() || w.TTL > longestCell {
			t.Fatalf("a cell of windows of %v is kept for %v", p.LongestWindow(), w.TTL)
		}
	})
}

// checkDecisions decides on copies of s, which may say anything.
func checkDecisions(t *testing.T, p *plan, s *store.State) {
	t.Helper()
	for _, op := range []count.Op{count.OpCheck, count.OpTake, count.OpRecord} {
		on := *s
		on.Logs, on.Counts, on.Levels = slices.Clone(s.Logs), slices.Clone(s.Counts), slices.Clone(s.Levels)
		var d count.Decision
		p.Decide(&d, &on, op, store.EventID{8}, fuzzNow, 2)
		for _, l := range append(d.Limits(), count.LimitDecision{Limit: &p.Limits[0], Verdict: d.Verdict}) {
			if l.Remaining < 0 || l.Remaining > l.Limit.Limit || l.Used < 0 {
				t.Fatalf("%s of %+v: %+v", op, s, l.Verdict)
			}
		}
		if d.Allowed == (op == count.OpTake && d.Recorded == count.RecordedNo) && op != count.OpCheck {
			t.Fatalf("%s of %+v: allowed %v, recorded %q", op, s, d.Allowed, d.Recorded)
		}
	}
}

// FuzzState decides on what a store may return: rows with any number in them, but for
// costs below 1, which stores make 1 or refuse.
func FuzzState(f *testing.F) {
	p, _ := serialPlan()
	row := func(numbers ...int64) (b []byte) {
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
		return b
	}
	f.Add(int64(0), row(int64(fuzzNow)-5, 1, 0), row(0, int64(fuzzNow)-5000, int64(fuzzNow)+5000, 0, 1))
	f.Add(int64(fuzzNow), row(int64(fuzzNow)+5, -1, int64(fuzzNow)), row(2, int64(fuzzNow), 0, -1, -7))
	f.Add(int64(-1), row(1<<62, 1<<62, 1<<62, 1<<62, 1<<62, -1<<62), row(3, 0, 0, 0, 1<<62, 3, 0, 0, 0, 1<<62))
	f.Fuzz(func(t *testing.T, reset int64, events, counts []byte) {
		s := store.State{Reset: store.Instant(reset), Logs: make([]store.Log, 1)}
		for r := (reader{b: events}); len(r.b) > 0; {
			s.Logs[0].Events = append(s.Logs[0].Events, store.Event{At: store.Instant(r.int()), Cost: max(1, r.int()), Ends: store.Instant(r.int())})
		}
		slices.SortStableFunc(s.Logs[0].Events, func(a, b store.Event) int { return cmp.Compare(a.At, b.At) })
		for r := (reader{b: counts}); len(r.b) > 0; {
			id := p.Rules[r.uint()%uint64(len(p.Rules))].ID
			s.Counts = append(s.Counts, store.Count{
				Limit: id, Start: store.Instant(r.int()), Expires: store.Instant(r.int()), Epoch: store.Instant(r.int()), Units: r.int(),
			})
		}
		checkDecisions(t, p, &s)
	})
}

// FuzzUsage reads what may be kept of an idempotency key: it is refused, or can be
// answered.
func FuzzUsage(f *testing.F) {
	p, _ := serialPlan()
	d := p.Unasked()
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
		plan, _, _, err := e.planOf("p", "i")
		if err != nil {
			t.Fatal(err)
		}
		c := charge{target: plan.of("i"), op: count.OpTake, cost: 1}
		id := e.ids.Next(store.Instant(made))
		e.heard(t.Context(), &store.Change{
			ID: id, Kind: store.ChangeKind(kind), Key: c.key, Until: store.Instant(until), Strikes: strikes, TTL: time.Duration(ttl),
		})
		blocked, d := e.decideBlocked(&c), &c.decision
		if blocked && (d.Allowed || d.RetryAfter <= 0 || store.ChangeKind(kind) != store.ChangeBlock || store.Instant(until) <= fuzzNow) {
			t.Fatalf("%s until %d: %+v", kind, until, d.Verdict)
		}
		if next, _ := e.blocks.Punish(&p, c.key, c.old, fuzzNow, fuzzNow); !blocked && next.Until.Sub(fuzzNow) > p.BlockMax {
			t.Fatalf("%s of %d strikes: a block until %d", kind, strikes, next.Until)
		}
		reset := store.Change{ID: e.ids.Next(max(fuzzNow, id.Instant())), Kind: store.ChangeReset, Key: c.key}
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
	p := policy.Policy{Name: "p", Guarantee: policy.GuaranteeSerial, Limits: []policy.Limit{
		{Name: "l", Algorithm: "sliding-log", Limit: 1, Window: time.Minute},
		{Name: "b", Algorithm: "token-bucket", Limit: 1, Window: time.Minute},
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
		var c charge
		if _, err := e.charge(e.plans.Load(), &c, count.OpTake, &d); err == nil {
			if found := c.plan.Limits[0]; found.Limit < 0 || found.Limit > policy.MaxLogLimit {
				t.Fatalf("%q: %+v", details, found)
			}
			if e.decideOverridden(&c) && store.Instant(until) <= fuzzNow {
				t.Fatalf("%q is in force after its end", details)
			}
		}
		end := store.Change{ID: e.ids.Next(max(fuzzNow, id.Instant()+1)), Kind: store.ChangeOverride, Key: key}
		if e.heard(t.Context(), &end); len(e.Overrides()) > 0 {
			t.Fatalf("%q outlives its end", details)
		}
	})
}

// FuzzEventIDs reads the instants of any UUIDs, and back those of its own.
func FuzzEventIDs(f *testing.F) {
	f.Add([]byte{}, int64(fuzzNow))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, int64(0))
	ids := store.NewEventIDs()
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		var id store.EventID
		copy(id[:], b)
		const year = store.Instant(365 * 24 * time.Hour / time.Millisecond)
		if got := id.Instant(); got < -5000*year || got > 5000*year { // 60 bits of ticks tell 3653 years
			t.Fatalf("%v is dated %d", id, got)
		}
		at &= 1<<44 - 1 // to the year 2527
		if made := ids.Next(store.Instant(at)); made.Instant() != store.Instant(at) || !ids.Made(made) {
			t.Fatalf("%v was made at %d, and is dated %d", made, at, made.Instant())
		}
	})
}
