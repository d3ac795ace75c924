package metrics_test

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/events"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// TestTallies holds that checks and takes count by policy, across a reload without changes, and that records and undecided
// calls do not count.
func TestTallies(t *testing.T) {
	m := metrics.New(prometheus.NewRegistry(), nil)
	p := policy.Policy{Name: "login", Limits: []policy.Limit{{Name: "l"}}}
	m.SetPolicies([]*policy.Policy{&p})
	for _, outcome := range []count.Outcome{
		count.OutcomeAllowed, count.OutcomeDenied, count.OutcomeBlocked, count.OutcomeRefused, count.OutcomeWouldDeny,
		count.OutcomeDegradedAllowed, count.OutcomeDegradedDenied,
	} {
		m.ObserveCall(count.OpTake, &p, outcome)
	}
	m.ObserveCall(count.OpRecord, &p, count.OutcomeAllowed)
	m.SetPolicies([]*policy.Policy{&p})
	m.ObserveCall(count.OpCheck, &p, count.OutcomeDenied)
	d := count.Decision{Policy: &p, Degraded: true}
	d.SetLimits([]count.LimitDecision{{Limit: &p.Limits[0]}})
	m.Observe(count.OpTake, store.Key{}, 1, &d)
	want := map[string]events.Tally{"login": {Calls: 6, Denied: 4, Degraded: 1}}
	if got := m.Tallies(); !maps.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	m.SetPolicies(nil)
	if got := m.Tallies(); len(got) > 0 {
		t.Errorf("%+v of no policy", got)
	}
}
