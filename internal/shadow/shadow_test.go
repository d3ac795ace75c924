package shadow_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/shadow"
)

// instance is an engine whose shadows are counted, and the clock that both go by.
type instance struct {
	*testing.T
	engine *limiter.Engine
	table  *shadow.Table
	now    time.Time
}

func newInstance(t *testing.T, policies ...policy.Policy) *instance {
	x := &instance{T: t, now: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}
	clock := func() time.Time { return x.now }
	x.table = shadow.New(clock)
	observer := limiter.Observer{Decided: x.table.Observe, Confirmed: x.table.Confirmed}
	x.engine = limiter.New(embedded.New(nil), &limiter.Options{Now: clock, Observer: observer})
	x.set(policies...)
	return x
}

func (x *instance) set(policies ...policy.Policy) {
	x.Helper()
	if err := x.engine.SetPolicies(policies); err != nil {
		x.Fatal(err)
	}
	x.table.SetPolicies(x.engine.Policies())
}

func (x *instance) do(op count.Op, who string, policies ...string) {
	x.Helper()
	call := limiter.Call{Op: op}
	for _, name := range policies {
		call.Demands = append(call.Demands, limiter.Demand{Policy: name, Identifier: keys.Identifier(who)})
	}
	if _, err := x.engine.Do(x.Context(), &call); err != nil {
		x.Fatal(err)
	}
}

func (x *instance) report(name string) shadow.Report {
	x.Helper()
	r, known := x.table.Report(name)
	if !known {
		x.Fatalf("nothing of %s is in shadow", name)
	}
	return r
}

func inHour(name string, n int64, shadow bool) policy.Limit {
	return policy.Limit{Name: name, Algorithm: "sliding-log", Limit: n, Window: time.Hour, Shadow: shadow}
}

// tightened has 10 an hour in force, and 5 and 2 in shadow.
func tightened() policy.Policy {
	return policy.Policy{Name: "p", Limits: []policy.Limit{inHour("enforced", 10, false), inHour("five", 5, true), inHour("two", 2, true)}}
}

// TestShadowsAreCounted counts calls, denials, denials by shadows, and callers.
func TestShadowsAreCounted(t *testing.T) {
	x := newInstance(t, tightened())
	for range 12 {
		x.do(count.OpTake, "a", "p")
	}
	for range 4 {
		x.do(count.OpTake, "b", "p")
	}
	x.do(count.OpCheck, "b", "p")
	x.do(count.OpRecord, "b", "p")
	r := x.report("p")
	if r.Calls != 16 || r.Denied != 2 || r.Undecided != 0 || r.WouldDeny != 10 || *r.Callers.Count() != 2 || !r.Since.Equal(x.now) {
		t.Errorf("%+v, %d callers", r, *r.Callers.Count())
	}
	for i, want := range []struct {
		name           string
		would, callers int64
	}{{"five", 5, 1}, {"two", 10, 2}} {
		l := r.Limits[i]
		if l.Name != want.name || l.WouldDeny != want.would || *l.Callers.Count() != want.callers {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
}

// TestShadowsThatGoByConfirmations counts what is confirmed, from several instances, where a shadow goes by that, so that
// a report tells whether it can be judged.
func TestShadowsThatGoByConfirmations(t *testing.T) {
	p := policy.Policy{Name: "codes", Mode: policy.ModeShadow, Limits: []policy.Limit{
		{Name: "unconfirmed", Algorithm: "conversion", Unconfirmed: true, Limit: 2, MinConversion: 50, Window: 10 * time.Hour},
	}}
	send := func(x *instance) string {
		x.Helper()
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "codes", Identifier: "DE"}}}
		answer, err := x.engine.Do(x.Context(), &call)
		if err != nil {
			x.Fatal(err)
		}
		return answer.Receipt
	}
	x, other := newInstance(t, p, tightened()), newInstance(t, p)
	first, second := send(x), send(x)
	send(x)
	if r := x.report("codes"); r.WouldDeny != 1 || r.Confirmed == nil || *r.Confirmed != 0 {
		t.Errorf("before anything is confirmed: %+v", r)
	}
	for _, receipt := range []string{first, second, second} {
		if _, err := x.engine.Confirm(t.Context(), receipt); err != nil {
			t.Fatal(err)
		}
	}
	send(x)
	if _, err := other.engine.Confirm(t.Context(), send(other)); err != nil {
		t.Fatal(err)
	}
	r, told := x.report("codes"), other.report("codes")
	if r.WouldDeny != 1 || *r.Confirmed != 2 {
		t.Errorf("%+v, %d confirmed", r, *r.Confirmed)
	}
	if r.Add(&told); *r.Confirmed != 3 || *x.report("codes").Confirmed != 2 {
		t.Errorf("both together have %d", *r.Confirmed)
	}
	if r := x.report("p"); r.Confirmed != nil {
		t.Errorf("logs go by no confirmation: %+v", r)
	}
}

// TestSpansGoBackForAWhile holds that hours are kept for a week, and minutes for an hour.
func TestSpansGoBackForAWhile(t *testing.T) {
	x := newInstance(t, tightened())
	for range 200 { // hours
		for range 3 {
			x.do(count.OpTake, "a", "p")
		}
		x.now = x.now.Add(time.Hour)
	}
	x.now = x.now.Add(-30 * time.Minute)
	two := x.report("p").Limits[1]
	if two.WouldDeny != 200 || len(two.Hours) != 168 || len(two.Minutes) != 1 {
		t.Errorf("%d calls, %d hours, %d minutes", two.WouldDeny, len(two.Hours), len(two.Minutes))
	}
	for i, h := range two.Hours {
		if h.Calls != 3 || h.WouldDeny != 1 || *h.Callers.Count() != 1 || i > 0 && h.Start.Sub(two.Hours[i-1].Start) != time.Hour {
			t.Fatalf("hour %d: %+v", i, h)
		}
	}
}

// TestWholePolicies counts a policy in mode shadow by its verdict, and each of its limits.
func TestWholePolicies(t *testing.T) {
	p := policy.Policy{Name: "p", Mode: policy.ModeShadow, Limits: []policy.Limit{inHour("five", 5, false), inHour("two", 2, false)}}
	x := newInstance(t, p)
	for range 6 {
		x.do(count.OpTake, "a", "p")
	}
	r := x.report("p")
	if r.Calls != 6 || r.Denied != 0 || r.WouldDeny != 4 || r.Limits[0].WouldDeny != 0 || r.Limits[1].WouldDeny != 4 {
		t.Errorf("%+v: as if enforced, two of six are counted", r)
	}
}

// TestWhatOthersDenyIsNotAdmitted leaves out calls that another demand denies.
func TestWhatOthersDenyIsNotAdmitted(t *testing.T) {
	closed := policy.Policy{Name: "closed", Limits: []policy.Limit{inHour("none", 0, false)}}
	p := tightened()
	p.Limits[2].Limit = 0
	x := newInstance(t, p, closed)
	x.do(count.OpTake, "a", "p", "closed")
	if r := x.report("p"); r.Calls != 1 || r.WouldDeny != 0 {
		t.Errorf("%+v", r)
	}
	x.do(count.OpTake, "a", "p")
	if r := x.report("p"); r.Calls != 2 || r.WouldDeny != 1 {
		t.Errorf("%+v", r)
	}
}

// TestCountingGoesOnWithTheSameLimits begins anew only where what is in shadow is something else.
func TestCountingGoesOnWithTheSameLimits(t *testing.T) {
	x := newInstance(t, tightened())
	x.do(count.OpTake, "a", "p")
	x.now = x.now.Add(time.Minute)
	other := tightened()
	other.Description, other.OnStoreError = "the same limits", policy.OnStoreErrorAllow
	x.set(other)
	if r := x.report("p"); r.Calls != 1 {
		t.Errorf("%+v", r)
	}
	other.Limits[1].Limit = 4
	x.set(other)
	if r := x.report("p"); r.Calls != 0 || !r.Since.Equal(x.now) {
		t.Errorf("%+v", r)
	}
	x.set(policy.Policy{Name: "p", Limits: []policy.Limit{inHour("five", 5, false)}})
	if _, known := x.table.Report("p"); known {
		t.Error("a policy without shadows has a report")
	}
}

// TestReportsAddUp checks that the reports of two instances, sent as peers do and added up, are the counts of one with
// the calls of both.
func TestReportsAddUp(t *testing.T) {
	var each [2]*instance
	all := newInstance(t, tightened())
	for i := range each {
		each[i] = newInstance(t, tightened())
	}
	for step := range 3000 {
		who := fmt.Sprintf("%d-%d", step%2, step%700) // each on one instance, whose store is its own
		for _, x := range []*instance{all, each[step%2]} {
			x.do(count.OpTake, who, "p")
		}
		for _, x := range []*instance{all, each[0], each[1]} {
			x.now = x.now.Add(time.Second)
		}
	}
	sum := each[0].report("p")
	text, err := json.Marshal(each[1].report("p"))
	if err != nil {
		t.Fatal(err)
	}
	var told shadow.Report
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatal(err)
	}
	sum.Add(&told)
	got, want := figures(t, sum), figures(t, all.report("p"))
	if got != want {
		t.Errorf("%s\nof one:\n%s", got, want)
	}
	if n := *sum.Limits[1].Callers.Count(); n < 650 || n > 750 {
		t.Errorf("%d callers, want about 700", n)
	}
}

// figures writes r with numbers of callers.
func figures(t *testing.T, r shadow.Report) string {
	t.Helper()
	type span struct {
		at         time.Time
		calls, who int64
		would      int64
	}
	text := fmt.Sprintln(r.Print, r.Since, r.Calls, r.Denied, r.WouldDeny, *r.Callers.Count())
	for _, l := range r.Limits {
		text += fmt.Sprintln(l.Name, l.WouldDeny, *l.Callers.Count())
		for _, s := range append(l.Hours, l.Minutes...) {
			one := span{at: s.Start, calls: s.Calls, would: s.WouldDeny}
			if n := s.Callers.Count(); n != nil {
				one.who = *n
			}
			text += fmt.Sprintln(one)
		}
	}
	return text
}

// TestNonsenseOfAPeer is refused.
func TestNonsenseOfAPeer(t *testing.T) {
	for _, text := range []string{`{"Callers":"AAAA"}`, `{"Callers":"!"}`, `{"Callers":7}`} {
		if err := json.Unmarshal([]byte(text), new(shadow.Report)); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}
