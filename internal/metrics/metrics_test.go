package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const decisionsHelp = "Decisions, by policy, its tightest limit, operation and outcome: allowed; denied; blocked, by block_for; " +
	"refused, by countries or number_types; would_deny, allowed only because the policy or the limit is in shadow; " +
	"off, by mode off; degraded_allowed or degraded_denied, by on_store_error."

const refusedHelp = "Decisions about phone numbers that the policy's countries or number_types refuse, by reason: " +
	"country or number_type. Mode shadow allows them."

// fixture is an engine over the embedded store, both observed, and a clock that stands still.
type fixture struct {
	t       *testing.T
	reg     *prometheus.Registry
	metrics *Metrics
	engine  *limiter.Engine
	store   *frail
	now     time.Time
}

// frail is the embedded store, which fails with err if that is set.
type frail struct {
	*embedded.Store
	err error
}

func (f *frail) Update(ctx context.Context, q *store.Query, decide func(*store.State, *store.Write)) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Update(ctx, q, decide)
}

func (f *frail) UpdateAll(ctx context.Context, q []store.Query, decide func([]store.State, []store.Write)) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.UpdateAll(ctx, q, decide)
}

func newFixture(t *testing.T, policies ...policy.Policy) *fixture {
	t.Helper()
	f := &fixture{t: t, reg: prometheus.NewPedanticRegistry(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return f.now }
	f.metrics = New(f.reg, now)
	f.store = &frail{Store: embedded.New(&embedded.Options{Now: now})}
	f.engine = limiter.New(f.metrics.Store(f.store), &limiter.Options{
		Now: now, Identifiers: identifier.Reader,
		Observer: limiter.Observer{
			Decided: f.metrics.Observe, Called: f.metrics.ObserveCall, Confirmed: f.metrics.Confirmed, Refunded: f.metrics.Refunded,
		},
	})
	f.reload(policies...)
	return f
}

func (f *fixture) reload(policies ...policy.Policy) {
	f.t.Helper()
	if err := f.engine.SetPolicies(policies); err != nil {
		f.t.Fatal(err)
	}
	f.metrics.SetPolicies(f.engine.Policies())
}

func (f *fixture) take(policy string) {
	f.t.Helper()
	if _, err := f.engine.Take(context.Background(), limiter.Demand{Policy: policy, Identifier: "a"}); err != nil {
		f.t.Fatal(err)
	}
}

// want compares the named metrics with an exposition; leading tabs are cut.
func (f *fixture) want(exposition string, names ...string) {
	f.t.Helper()
	text := strings.ReplaceAll(exposition, "\t", "")
	if err := testutil.GatherAndCompare(f.reg, strings.NewReader(text), names...); err != nil {
		f.t.Error(err)
	}
}

func aPolicy(name string, limits ...int64) policy.Policy {
	p := policy.Policy{Name: name}
	for i, n := range limits {
		l := policy.Limit{Name: "l" + strconv.Itoa(i), Algorithm: "fixed-window", Limit: n, Window: time.Minute}
		p.Limits = append(p.Limits, l)
	}
	return p
}

// TestCallsAreWhatCallersAreTold holds that a call that a derived policy denies counts as denied under the policy of the
// call, which itself allows it.
func TestCallsAreWhatCallersAreTold(t *testing.T) {
	address, network := aPolicy("address", 100), aPolicy("network", 3)
	address.Normalize.Form = policy.FormIP
	address.Derive = []policy.Derivation{{Policy: "network", From: policy.PartIPPrefix, IPv4Bits: 24}}
	alone, shadow := aPolicy("alone", 1), aPolicy("shadow", 1)
	shadow.Mode = policy.ModeShadow
	const help = "# HELP ratelimitd_calls_total Calls by policy, operation and the outcome of the whole call, as in the answer. " +
		"Outcomes are those of ratelimitd_decisions_total: a call that a derived policy or another demand denies is denied here, " +
		"and allowed among the decisions of this policy. A call counts once for each of its demands, but not for derived ones.\n" +
		"# TYPE ratelimitd_calls_total counter"
	f := newFixture(t, address, network, alone, shadow)
	take := func(demands ...limiter.Demand) {
		if _, err := f.engine.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: demands}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 6 {
		take(limiter.Demand{Policy: "address", Identifier: keys.Identifier("192.0.2." + strconv.Itoa(n))})
	}
	for range 2 {
		take(limiter.Demand{Policy: "alone", Identifier: "a"}, limiter.Demand{Policy: "shadow", Identifier: "a"})
	}
	take(limiter.Demand{Policy: "shadow", Identifier: "a"})
	f.want(help+`
		ratelimitd_calls_total{op="take",outcome="allowed",policy="address"} 3
		ratelimitd_calls_total{op="take",outcome="denied",policy="address"} 3
		ratelimitd_calls_total{op="take",outcome="allowed",policy="alone"} 1
		ratelimitd_calls_total{op="take",outcome="denied",policy="alone"} 1
		ratelimitd_calls_total{op="take",outcome="allowed",policy="shadow"} 1
		ratelimitd_calls_total{op="take",outcome="denied",policy="shadow"} 1
		ratelimitd_calls_total{op="take",outcome="would_deny",policy="shadow"} 1
	`, "ratelimitd_calls_total")
	f.reload(alone)
	f.want(help+`
		ratelimitd_calls_total{op="take",outcome="allowed",policy="alone"} 1
		ratelimitd_calls_total{op="take",outcome="denied",policy="alone"} 1
	`, "ratelimitd_calls_total")
}

// TestDecisions holds that each outcome of each operation counts under the tightest limit, and that denials by all limits of
// a policy have counters from its first decision on, so that Prometheus sees the first denial.
func TestDecisions(t *testing.T) {
	shadow, off, lenient := aPolicy("shadow", 1), aPolicy("off", 1), aPolicy("lenient", 1)
	shadow.Mode, off.Mode, lenient.OnStoreError = policy.ModeShadow, policy.ModeOff, policy.OnStoreErrorAllow
	f := newFixture(t, aPolicy("p", 9, 2), shadow, off, lenient)
	for range 3 {
		f.take("p")
	}
	demand := limiter.Demand{Policy: "p", Identifier: "a"}
	if _, err := f.engine.Check(context.Background(), demand); err != nil {
		t.Fatal(err)
	}
	if _, err := f.engine.Record(context.Background(), demand); err != nil {
		t.Fatal(err)
	}
	f.take("shadow")
	f.take("shadow")
	f.take("off")
	f.store.err = store.ErrUnavailable
	f.take("lenient")
	f.want(`
		# HELP ratelimitd_decisions_total `+decisionsHelp+`
		# TYPE ratelimitd_decisions_total counter
		ratelimitd_decisions_total{limit="l0",op="take",outcome="degraded_allowed",policy="lenient"} 1
		ratelimitd_decisions_total{limit="l0",op="take",outcome="off",policy="off"} 1
		ratelimitd_decisions_total{limit="l0",op="take",outcome="allowed",policy="shadow"} 1
		ratelimitd_decisions_total{limit="l0",op="take",outcome="would_deny",policy="shadow"} 1
		ratelimitd_decisions_total{limit="l0",op="check",outcome="denied",policy="p"} 0
		ratelimitd_decisions_total{limit="l0",op="record",outcome="denied",policy="p"} 0
		ratelimitd_decisions_total{limit="l0",op="take",outcome="denied",policy="lenient"} 0
		ratelimitd_decisions_total{limit="l0",op="take",outcome="denied",policy="p"} 0
		ratelimitd_decisions_total{limit="l1",op="record",outcome="denied",policy="p"} 0
		ratelimitd_decisions_total{limit="l1",op="check",outcome="denied",policy="p"} 1
		ratelimitd_decisions_total{limit="l1",op="record",outcome="allowed",policy="p"} 1
		ratelimitd_decisions_total{limit="l1",op="take",outcome="allowed",policy="p"} 2
		ratelimitd_decisions_total{limit="l1",op="take",outcome="denied",policy="p"} 1
		# HELP ratelimitd_degraded_decisions_total Decisions that on_store_error made because the store did not answer.
		# TYPE ratelimitd_degraded_decisions_total counter
		ratelimitd_degraded_decisions_total{policy="lenient"} 1
		ratelimitd_degraded_decisions_total{policy="off"} 0
		ratelimitd_degraded_decisions_total{policy="p"} 0
		ratelimitd_degraded_decisions_total{policy="shadow"} 0
	`, "ratelimitd_decisions_total", "ratelimitd_degraded_decisions_total")
}

// TestRememberedDenials holds that denials from memory are counted.
func TestRememberedDenials(t *testing.T) {
	f := newFixture(t, aPolicy("p", 1))
	d, err := f.engine.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: "a"})
	if err != nil {
		t.Fatal(err)
	}
	d.Allowed, d.Remembered = false, true
	f.metrics.Observe(count.OpTake, store.Key{}, 1, &d)
	f.want(`
		# HELP ratelimitd_remembered_denials_total Denials from memory, without a request to the store.
		# TYPE ratelimitd_remembered_denials_total counter
		ratelimitd_remembered_denials_total{policy="p"} 1
	`, "ratelimitd_remembered_denials_total")
}

// TestBlockedDecisions holds that denials by a block and by a limit are distinguished, and that both count as attempts beyond
// the limit.
func TestBlockedDecisions(t *testing.T) {
	p := aPolicy("p", 1)
	p.BlockFor = time.Hour
	f := newFixture(t, p)
	for range 5 {
		f.take("p")
	}
	if _, err := f.engine.Check(context.Background(), limiter.Demand{Policy: "p", Identifier: "a"}); err != nil {
		t.Fatal(err)
	}
	f.want(`
		# HELP ratelimitd_decisions_total `+decisionsHelp+`
		# TYPE ratelimitd_decisions_total counter
		ratelimitd_decisions_total{limit="l0",op="check",outcome="blocked",policy="p"} 1
		ratelimitd_decisions_total{limit="l0",op="check",outcome="denied",policy="p"} 0
		ratelimitd_decisions_total{limit="l0",op="take",outcome="allowed",policy="p"} 1
		ratelimitd_decisions_total{limit="l0",op="take",outcome="blocked",policy="p"} 3
		ratelimitd_decisions_total{limit="l0",op="take",outcome="denied",policy="p"} 1
		# HELP ratelimitd_overshoot_repeated_total Attempts of a key beyond its limit, without the first one in each window.
		# TYPE ratelimitd_overshoot_repeated_total counter
		ratelimitd_overshoot_repeated_total{policy="p"} 3
	`, "ratelimitd_decisions_total", "ratelimitd_overshoot_repeated_total")
}

// TestReload holds that series of removed policies are deleted, and others continue.
func TestReload(t *testing.T) {
	names := []string{
		"ratelimitd_decisions_total", "ratelimitd_degraded_decisions_total",
		"ratelimitd_policy_limit_units", "ratelimitd_policy_window_seconds",
	}
	f := newFixture(t, aPolicy("gone", 1), aPolicy("stays", 9, 2))
	f.take("gone")
	f.take("stays")
	gone := (*f.metrics.policies.Load())["gone"]
	f.reload(aPolicy("stays", 9), aPolicy("new", 5))
	f.want(`
		# HELP ratelimitd_decisions_total `+decisionsHelp+`
		# TYPE ratelimitd_decisions_total counter
		ratelimitd_decisions_total{limit="l0",op="take",outcome="denied",policy="stays"} 0
		# HELP ratelimitd_degraded_decisions_total Decisions that on_store_error made because the store did not answer.
		# TYPE ratelimitd_degraded_decisions_total counter
		ratelimitd_degraded_decisions_total{policy="new"} 0
		ratelimitd_degraded_decisions_total{policy="stays"} 0
		# HELP ratelimitd_policy_limit_units Units that a limit admits in its window, except for identifiers listed in by.
		# TYPE ratelimitd_policy_limit_units gauge
		ratelimitd_policy_limit_units{limit="l0",policy="new"} 5
		ratelimitd_policy_limit_units{limit="l0",policy="stays"} 9
		# HELP ratelimitd_policy_window_seconds Length of a limit's window.
		# TYPE ratelimitd_policy_window_seconds gauge
		ratelimitd_policy_window_seconds{limit="l0",policy="new"} 60
		ratelimitd_policy_window_seconds{limit="l0",policy="stays"} 60
	`, names...)
	f.take("stays")
	f.reload(aPolicy("stays", 9))
	f.take("stays")
	f.metrics.countLimit(gone, &gone.limits[0], count.OpCheck, count.OutcomeDenied) // it was under way, and must not bring a series back
	f.want(`
		# HELP ratelimitd_decisions_total `+decisionsHelp+`
		# TYPE ratelimitd_decisions_total counter
		ratelimitd_decisions_total{limit="l0",op="take",outcome="allowed",policy="stays"} 2
		ratelimitd_decisions_total{limit="l0",op="take",outcome="denied",policy="stays"} 0
	`, "ratelimitd_decisions_total")
}

// TestUnknownPoliciesAreNotCounted holds that decisions under policies that SetPolicies did not get are not counted.
func TestUnknownPoliciesAreNotCounted(t *testing.T) {
	f := newFixture(t, aPolicy("p", 1))
	f.metrics.SetPolicies(nil)
	f.take("p")
	f.want("", "ratelimitd_decisions_total")
}

// TestRun holds that ended episodes are published without a scrape.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, aPolicy("p", 1))
		f.take("p")
		f.take("p")
		f.now = f.now.Add(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.metrics.Run(ctx) }()
		<-time.After(flushEvery + time.Millisecond)
		synctest.Wait()
		if got := f.metrics.overshoot.Len(); got != 0 {
			t.Errorf("%d keys are still over", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestStoreDurations holds that each operation counts by its outcome, and that a store.Exclusive stays one.
func TestStoreDurations(t *testing.T) {
	f := newFixture(t)
	if _, ok := f.metrics.Store(plain{f.store}).(store.Exclusive); ok {
		t.Error("a plain store has become exclusive")
	}
	if _, ok := f.metrics.Store(f.store).(store.Exclusive); !ok {
		t.Error("an exclusive store no longer is")
	}
	ctx := context.Background()
	observed := f.metrics.Store(slow{plain{f.store}, f})
	if _, err := observed.Read(ctx, &store.Query{}); err != nil {
		t.Fatal(err)
	}
	if err := observed.Write(ctx, &store.Write{}); err != nil {
		t.Fatal(err)
	}
	if _, wrote, err := observed.WriteThenRead(ctx, &store.Write{}, &store.Query{}); err != nil || !wrote {
		t.Errorf("written %v, %v", wrote, err)
	}
	told := 0
	observed.WriteEach(ctx, make([]store.Write, 1), func(int, error) { told++ })
	if told != 1 {
		t.Errorf("one write is told %d times", told)
	}
	for _, err := range []error{
		store.ErrOverloaded, store.ErrUnavailable, errors.New("?"), context.Canceled,
		fmt.Errorf("%w: %w", store.ErrUnavailable, context.DeadlineExceeded),
	} {
		f.store.err = err
		exclusive := f.metrics.Store(f.store).(store.Exclusive)
		if got := exclusive.UpdateAll(ctx, []store.Query{{}}, nil); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	for series, want := range map[string]string{
		`op="read",outcome="ok"`: "0.003", `op="write_read",outcome="ok"`: "0.006", `op="update",outcome="overloaded"`: "0",
		`op="update",outcome="unavailable"`: "0", `op="update",outcome="error"`: "0", `op="update",outcome="canceled"`: "0",
		`op="update",outcome="timeout"`: "0",
	} {
		for _, line := range []string{"_count{" + series + "} 1\n", "_sum{" + series + "} " + want + "\n"} {
			if !strings.Contains(f.exposition(), "ratelimitd_store_duration_seconds"+line) {
				t.Errorf("%s is missing", line)
			}
		}
	}
	for _, line := range []string{`_count{op="write",outcome="ok"} 2`, `_sum{op="write",outcome="ok"} 0.006`} {
		if !strings.Contains(f.exposition(), "ratelimitd_store_duration_seconds"+line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}

// plain is a store that is not a store.Exclusive.
type plain struct{ store.Store }

// slow takes three milliseconds for each operation.
type slow struct {
	store.Store
	f *fixture
}

func (s slow) Read(ctx context.Context, q *store.Query) (store.State, error) {
	s.f.now = s.f.now.Add(3 * time.Millisecond)
	return s.Store.Read(ctx, q)
}

func (s slow) Write(ctx context.Context, w *store.Write) error {
	s.f.now = s.f.now.Add(3 * time.Millisecond)
	return s.Store.Write(ctx, w)
}

func (s slow) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, s, w, wrote)
}

func (s slow) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, s, w, q)
}

func (f *fixture) exposition() string {
	w := httptest.NewRecorder()
	Handler(f.reg).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// TestHTTPDurations holds that requests count by route and class of status.
func TestHTTPDurations(t *testing.T) {
	f := newFixture(t)
	for status, class := range map[int]string{
		200: "2xx", 204: "2xx", 429: "4xx", 503: "5xx", 101: "1xx", 304: "3xx", 0: "other", 600: "other",
	} {
		if got := statusClass(status); got != class {
			t.Errorf("%d is %s, want %s", status, got, class)
		}
	}
	f.metrics.ObserveHTTP("/v1/take", 429, 2*time.Millisecond, "")
	for _, line := range []string{
		`ratelimitd_http_request_duration_seconds_bucket{route="/v1/take",status="4xx",le="0.001"} 0`,
		`ratelimitd_http_request_duration_seconds_bucket{route="/v1/take",status="4xx",le="0.0025"} 1`,
	} {
		if !strings.Contains(f.exposition(), line) {
			t.Errorf("%s is missing", line)
		}
	}
}

// TestGauges holds that each setter sets its gauge.
func TestGauges(t *testing.T) {
	f := newFixture(t)
	f.metrics.SetClockOffset(-20 * time.Millisecond)
	f.metrics.SetSweepProgress(.25)
	f.metrics.SetSweepFinished(time.UnixMilli(1500))
	f.metrics.AddSwept(3)
	f.metrics.SetBreaker(false)
	f.want(`
		# HELP ratelimitd_breaker_state 1 for the current state of the store's breaker, 0 for the others.
		# TYPE ratelimitd_breaker_state gauge
		ratelimitd_breaker_state{state="closed"} 0
		ratelimitd_breaker_state{state="open"} 1
		# HELP ratelimitd_clock_offset_seconds How far this instance's clock is ahead of the store's, negative if it is behind.
		# TYPE ratelimitd_clock_offset_seconds gauge
		ratelimitd_clock_offset_seconds -0.02
		# HELP ratelimitd_sweeper_finished_timestamp_seconds Time when this instance last finished a sweep, 0 if it never did.
		# TYPE ratelimitd_sweeper_finished_timestamp_seconds gauge
		ratelimitd_sweeper_finished_timestamp_seconds 1.5
		# HELP ratelimitd_sweeper_progress_ratio Share of the store that the current sweep of expired counters has visited, 0 to 1.
		# TYPE ratelimitd_sweeper_progress_ratio gauge
		ratelimitd_sweeper_progress_ratio 0.25
		# HELP ratelimitd_sweeper_swept_total Keys whose expired counters the sweeper deleted.
		# TYPE ratelimitd_sweeper_swept_total counter
		ratelimitd_sweeper_swept_total 3
	`, "ratelimitd_breaker_state", "ratelimitd_clock_offset_seconds", "ratelimitd_sweeper_finished_timestamp_seconds",
		"ratelimitd_sweeper_progress_ratio", "ratelimitd_sweeper_swept_total")
}

// TestNamesFollowConventions holds that Prometheus's linter accepts all names, and that the breaker starts closed.
func TestNamesFollowConventions(t *testing.T) {
	f := newFixture(t, aPolicy("p", 1))
	f.take("p")
	f.metrics.ObserveHTTP("/v1/take", 200, 0, "")
	problems, err := testutil.GatherAndLint(f.reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	if !strings.Contains(f.exposition(), `ratelimitd_breaker_state{state="closed"} 1`) {
		t.Error("the breaker does not start closed")
	}
}

// TestManyAtOnce decides and reloads at the same time: run it with -race.
func TestManyAtOnce(t *testing.T) {
	f := newFixture(t, aPolicy("p", 1_000_000))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 500 {
				f.take("p")
			}
		})
	}
	for range 20 {
		f.metrics.SetPolicies(f.engine.Policies())
	}
	all.Wait()
	total := testutil.ToFloat64(f.metrics.decisions.total.WithLabelValues("p", "l0", "take", "allowed"))
	if total != 2000 {
		t.Errorf("%v decisions, want 2000", total)
	}
}

// TestRefusedNumbers holds that refused numbers count by their rule, enforced or not, and not as attempts beyond a limit.
func TestRefusedNumbers(t *testing.T) {
	p, shadow := aPolicy("p", 1), aPolicy("shadow", 1)
	p.Normalize.Form, p.Countries.Deny, p.NumberTypes.Allow = policy.FormE164, []string{"FR"}, []string{"mobile"}
	shadow.Normalize.Form, shadow.Countries.Allow, shadow.Mode = policy.FormE164, []string{"DE"}, policy.ModeShadow
	f := newFixture(t, p, shadow)
	for _, of := range []struct{ policy, number string }{
		{"p", "+4915112345678"}, {"p", "+33612345678"}, {"p", "+33612345679"}, {"p", "+4930901820"}, {"shadow", "+33612345678"},
	} {
		if _, err := f.engine.Take(context.Background(), limiter.Demand{Policy: of.policy, Identifier: keys.Identifier(of.number)}); err != nil {
			t.Fatal(err)
		}
	}
	f.want(`
		# HELP ratelimitd_decisions_total `+decisionsHelp+`
		# TYPE ratelimitd_decisions_total counter
		ratelimitd_decisions_total{limit="l0",op="take",outcome="allowed",policy="p"} 1
		ratelimitd_decisions_total{limit="l0",op="take",outcome="denied",policy="p"} 0
		ratelimitd_decisions_total{limit="l0",op="take",outcome="refused",policy="p"} 3
		ratelimitd_decisions_total{limit="l0",op="take",outcome="would_deny",policy="shadow"} 1
		# HELP ratelimitd_overshoot_units_total Units beyond the limit that attempts asked for.
		# TYPE ratelimitd_overshoot_units_total counter
		ratelimitd_overshoot_units_total{policy="p"} 0
		ratelimitd_overshoot_units_total{policy="shadow"} 0
		# HELP ratelimitd_refused_numbers_total `+refusedHelp+`
		# TYPE ratelimitd_refused_numbers_total counter
		ratelimitd_refused_numbers_total{policy="p",reason="country"} 2
		ratelimitd_refused_numbers_total{policy="p",reason="number_type"} 1
		ratelimitd_refused_numbers_total{policy="shadow",reason="country"} 1
	`, "ratelimitd_decisions_total", "ratelimitd_refused_numbers_total", "ratelimitd_overshoot_units_total")
	p.NumberTypes = policy.Choice{}
	f.reload(p)
	f.want(`
		# HELP ratelimitd_refused_numbers_total `+refusedHelp+`
		# TYPE ratelimitd_refused_numbers_total counter
		ratelimitd_refused_numbers_total{policy="p",reason="country"} 2
	`, "ratelimitd_refused_numbers_total")
}

// TestConfirmationsByCountry holds that sent, confirmed and refunded units count once under policies that depend on
// confirmations.
func TestConfirmationsByCountry(t *testing.T) {
	f := newFixture(t)
	f.metrics.Countries = Countries{Names: identifier.Countries(), KeyOf: f.engine.KeyOf}
	send, country := aPolicy("send", 5), aPolicy("country", 5)
	send.Normalize, send.Derive = policy.Normalize{Form: policy.FormE164}, []policy.Derivation{{Policy: "country", From: policy.PartCountry}}
	country.Limits[0] = policy.Limit{Algorithm: "conversion", Limit: 5, Window: time.Hour}
	f.reload(send, country)
	for _, number := range []keys.Identifier{"+4915112345678", "+4915112345679", "+4915112345670"} {
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "send", Identifier: number}}}
		answer, err := f.engine.Do(t.Context(), &call)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			if number == "+4915112345670" {
				if err := f.engine.Refund(t.Context(), answer.Receipt); (err == nil) != (i == 0) {
					t.Errorf("refund %d: %v", i, err)
				}
				continue
			}
			if _, err := f.engine.Confirm(t.Context(), answer.Receipt); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.want(`# HELP ratelimitd_confirmed_units_total Confirmed units among the sent ones.
	# TYPE ratelimitd_confirmed_units_total counter
	ratelimitd_confirmed_units_total{country="DE",policy="country"} 2
	# HELP ratelimitd_refunded_units_total Refunded units among the sent ones, for which nothing was sent after all.
	# TYPE ratelimitd_refunded_units_total counter
	ratelimitd_refunded_units_total{country="DE",policy="country"} 1
	# HELP ratelimitd_sent_units_total Units that takes and records counted under policies that depend on confirmations, by derived country.
	# TYPE ratelimitd_sent_units_total counter
	ratelimitd_sent_units_total{country="DE",policy="country"} 3
	`, "ratelimitd_sent_units_total", "ratelimitd_confirmed_units_total", "ratelimitd_refunded_units_total")
	f.reload(aPolicy("other", 5))
	f.want("", "ratelimitd_sent_units_total", "ratelimitd_confirmed_units_total", "ratelimitd_refunded_units_total")
}

// TestBoundsThatAreUsed holds that the used part of bounds of unconfirmed units is published by country or in total, until
// minutes after the last call, and not by range, of which there are many.
func TestBoundsThatAreUsed(t *testing.T) {
	f := newFixture(t)
	f.metrics.Countries = Countries{Names: identifier.Countries(), KeyOf: f.engine.KeyOf}
	bound := func(name string, units int64) policy.Policy {
		p := aPolicy(name, units)
		p.Limits[0] = policy.Limit{Algorithm: "conversion", Limit: units, Unconfirmed: true, MinConversion: 50, Window: 10 * time.Hour}
		return p
	}
	send := aPolicy("send", 50)
	send.Normalize = policy.Normalize{Form: policy.FormE164}
	send.Derive = []policy.Derivation{{Policy: "country", From: policy.PartCountry}, {Policy: "range", From: policy.PartPrefix, Digits: 7}}
	f.reload(send, bound("country", 4), bound("range", 40), bound("money", 1000))
	var receipt string
	for range 3 {
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
			{Policy: "send", Identifier: "+4915112345678"}, {Policy: "money", Identifier: "all", Cost: 75},
		}}
		answer, err := f.engine.Do(t.Context(), &call)
		if err != nil || !answer.Allowed {
			t.Fatal(answer, err)
		}
		receipt = answer.Receipt
	}
	told := func(country, money string) {
		t.Helper()
		f.want(`# HELP ratelimitd_unconfirmed_used_ratio Largest used share of a bound of unconfirmed units in calls of the last minutes, `+
			`0 to 1, by policy and country. Absent for policies derived from other parts of an identifier.
		# TYPE ratelimitd_unconfirmed_used_ratio gauge
		ratelimitd_unconfirmed_used_ratio{country="DE",policy="country"} `+country+`
		ratelimitd_unconfirmed_used_ratio{country="",policy="money"} `+money+`
		`, "ratelimitd_unconfirmed_used_ratio")
	}
	told("0.75", "0.225")
	if _, err := f.engine.Confirm(t.Context(), receipt); err != nil {
		t.Fatal(err)
	}
	f.now = f.now.Add(6 * time.Minute)
	told("0.75", "0.225") // no call has found it otherwise
	if _, err := f.engine.Check(t.Context(), limiter.Demand{Policy: "country", Identifier: "DE"}); err != nil {
		t.Fatal(err)
	}
	told("0.75", "0.225")
	f.now = f.now.Add(6 * time.Minute)
	told("0.25", "0")
	f.reload(send, aPolicy("country", 5), aPolicy("range", 5))
	f.want("", "ratelimitd_unconfirmed_used_ratio")
}
