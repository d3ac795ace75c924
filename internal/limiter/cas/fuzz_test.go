package cas

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// everyKind has a limit of each algorithm.
var everyKind = policy.Policy{Name: "p", Limits: []policy.Limit{
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

// planOfAll returns the plan of everyKind for a store that can lock keys.
func planOfAll() (*demand.Plan, *demand.Settings) {
	o := demand.Settings{}.WithDefaults()
	return demand.NewPlan(everyKind, o, true), o
}

// FuzzCell reads cells as a store may return them: one is refused, or what it says
// can be decided on, and is the same once it is written again.
func FuzzCell(f *testing.F) {
	p, o := planOfAll()
	s := store.State{Cell: store.Cell{Version: store.EventID{1}}, Logs: make([]store.Log, 1)}
	for range 2 {
		p.Decide(new(count.Decision), &s, count.OpTake, store.EventID{2}, fuzzNow, 1)
	}
	full := Shut(p, nil, &s, &Chain{newest: fuzzNow, versions: bytes.Repeat([]byte{3}, versionSize)}, store.EventID{4}, fuzzNow, o).Value
	f.Add(full)
	f.Add(full[:len(full)/2])
	f.Add([]byte{cellFormat})
	f.Add([]byte{cellFormat + 1})
	f.Add(append([]byte{cellFormat, 0, 1}, 0xff, 0xff, 0xff, 0xff, 0x0f))
	f.Fuzz(func(t *testing.T, value []byte) {
		s := store.State{Cell: store.Cell{Version: store.EventID{1}, Value: value}, Logs: make([]store.Log, 1)}
		c, err := Open(p, &s)
		if err != nil {
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("%x: %v", value, err)
			}
			return
		}
		if items := c.versions.Len() + len(s.Buckets); items > len(value) {
			t.Fatalf("%d bytes became %d items", len(value), items)
		}
		checkDecisions(t, p, &s)
		w := Shut(p, nil, &s, &c, store.EventID{9}, fuzzNow, o)
		again := store.State{Cell: store.Cell{Version: w.Version, Value: w.Value}}
		past, err := Open(p, &again)
		if err != nil || past.versions.At(0) != w.Version || past.newest != max(c.newest, fuzzNow) {
			t.Fatalf("%x was written as %x: %+v, %v", value, w.Value, past, err)
		}
		live := slices.DeleteFunc(slices.Clone(s.Buckets), func(b store.Bucket) bool { return !isLive(p, &b, &s, fuzzNow) })
		if again.Reset != s.Reset || !slices.Equal(again.Buckets, live) {
			t.Fatalf("%x was written as %x: %+v, want %+v", value, w.Value, again, s)
		}
		if w.TTL < p.LongestWindow() || w.TTL > longestCell {
			t.Fatalf("a cell of windows of %v is kept for %v", p.LongestWindow(), w.TTL)
		}
	})
}

// checkDecisions decides on copies of s, which may say anything.
func checkDecisions(t *testing.T, p *demand.Plan, s *store.State) {
	t.Helper()
	for _, op := range []count.Op{count.OpCheck, count.OpTake, count.OpRecord} {
		on := *s
		on.Logs, on.Counts, on.Buckets = slices.Clone(s.Logs), slices.Clone(s.Counts), slices.Clone(s.Buckets)
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
	p, _ := planOfAll()
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
		for r := (store.Reader{B: events}); len(r.B) > 0; {
			s.Logs[0].Events = append(s.Logs[0].Events, store.Event{At: store.Instant(r.Int()), Cost: max(1, r.Int()), Ends: store.Instant(r.Int())})
		}
		slices.SortStableFunc(s.Logs[0].Events, func(a, b store.Event) int { return cmp.Compare(a.At, b.At) })
		for r := (store.Reader{B: counts}); len(r.B) > 0; {
			id := p.Rules[r.Uint()%uint64(len(p.Rules))].ID
			s.Counts = append(s.Counts, store.Count{
				Limit: id, Start: store.Instant(r.Int()), Expires: store.Instant(r.Int()), Epoch: store.Instant(r.Int()), Units: r.Int(),
			})
		}
		checkDecisions(t, p, &s)
	})
}
