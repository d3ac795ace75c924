package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/ratelimitd/ratelimitd/internal/events"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Tallies returns the counts of the checks and takes of all policies that were asked for, by name.
func (m *Metrics) Tallies() map[string]events.Tally {
	tallies := make(map[string]events.Tally)
	each(m.decisions.calls, func(labels map[string]string, value int64) {
		t := tallies[labels["policy"]]
		if outcome := labels["outcome"]; labels["op"] != string(count.OpRecord) && !slices.Contains(undecided, outcome) {
			t.Calls += value
			if slices.Contains(denied, outcome) {
				t.Denied += value
			}
		}
		tallies[labels["policy"]] = t
	})
	each(m.decisions.degraded, func(labels map[string]string, value int64) {
		t := tallies[labels["policy"]]
		t.Degraded = value
		tallies[labels["policy"]] = t
	})
	return tallies
}

// The outcomes of calls that were denied, and of those that nobody decided.
var (
	denied    = []string{count.OutcomeDenied.String(), count.OutcomeBlocked.String(), count.OutcomeRefused.String()}
	undecided = []string{count.OutcomeDegradedAllowed.String(), count.OutcomeDegradedDenied.String()}
)

// each calls do with the labels and the value of each counter of vec.
func each(vec *prometheus.CounterVec, do func(labels map[string]string, value int64)) {
	series := make(chan prometheus.Metric)
	go func() {
		defer close(series)
		vec.Collect(series)
	}()
	for one := range series {
		var m dto.Metric
		if one.Write(&m) != nil {
			continue
		}
		labels := make(map[string]string, len(m.GetLabel()))
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		do(labels, int64(m.GetCounter().GetValue()))
	}
}

// CountryOf returns the country whose key that is under a policy which is derived from countries; else an empty text.
func (m *Metrics) CountryOf(policy string, key store.Key) string {
	if s := (*m.policies.Load())[policy]; s != nil {
		return s.countries[key]
	}
	return ""
}
