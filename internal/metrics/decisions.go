package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// ops are the operations by the index that their counters have.
var ops = [...]count.Op{count.OpCheck, count.OpRecord, count.OpTake}

// decisionVecs are the metrics with the label policy.
type decisionVecs struct {
	total      *prometheus.CounterVec // policy, limit, op, outcome
	calls      *prometheus.CounterVec // policy, op, outcome
	degraded   *prometheus.CounterVec // policy
	remembered *prometheus.CounterVec // policy
	refused    *prometheus.CounterVec // policy, reason
	limits     *prometheus.GaugeVec   // policy, limit
	windows    *prometheus.GaugeVec   // policy, limit
	overshootVecs
}

func newDecisionVecs(auto factory) decisionVecs {
	perLimit := []string{"policy", "limit"}
	return decisionVecs{
		total: auto.counters("ratelimitd_decisions_total",
			"Decisions, by policy, its tightest limit, operation and outcome: allowed; denied; blocked, by block_for; "+
				"refused, by countries or number_types; would_deny, allowed only because the policy or the limit is in shadow; "+
				"off, by mode off; degraded_allowed or degraded_denied, by on_store_error.",
			"policy", "limit", "op", "outcome"),
		calls: auto.counters("ratelimitd_calls_total",
			"Calls by policy, operation and the outcome of the whole call, as in the answer. Outcomes are those of "+
				"ratelimitd_decisions_total: a call that a derived policy or another demand denies is denied here, and allowed "+
				"among the decisions of this policy. A call counts once for each of its demands, but not for derived ones.",
			"policy", "op", "outcome"),
		degraded: auto.counters("ratelimitd_degraded_decisions_total",
			"Decisions that on_store_error made because the store did not answer.", "policy"),
		remembered: auto.counters("ratelimitd_remembered_denials_total",
			"Denials from memory, without a request to the store.", "policy"),
		refused: auto.counters("ratelimitd_refused_numbers_total",
			"Decisions about phone numbers that the policy's countries or number_types refuse, by reason: country or number_type. "+
				"Mode shadow allows them.",
			"policy", "reason"),
		limits: auto.gauges("ratelimitd_policy_limit_units",
			"Units that a limit admits in its window, except for identifiers listed in by.", perLimit...),
		windows:       auto.gauges("ratelimitd_policy_window_seconds", "Length of a limit's window.", perLimit...),
		overshootVecs: newOvershootVecs(auto),
	}
}

// remove deletes the series of a policy, each by its labels. To search for them would take time for the series of all
// policies, while decisions may wait.
func (v *decisionVecs) remove(s *policySeries) {
	for i := range s.limits {
		v.removeLimit(s.name, s.limits[i].name)
	}
	for _, op := range ops {
		for outcome := range count.OutcomeCount {
			v.calls.DeleteLabelValues(s.name, string(op), outcome.String())
		}
	}
	for _, vec := range []*prometheus.MetricVec{
		v.degraded.MetricVec, v.remembered.MetricVec,
		v.attempts.MetricVec, v.times.MetricVec, v.units.MetricVec, v.repeated.MetricVec,
	} {
		vec.DeleteLabelValues(s.name)
	}
	v.removeRefused(s, nil)
}

// removeRefused deletes the series of rules that was has and is does not have.
func (v *decisionVecs) removeRefused(was, is *policySeries) {
	for reason := range was.refused {
		if is == nil || is.refused[reason] == nil {
			v.refused.DeleteLabelValues(was.name, string(reason))
		}
	}
}

// removeLimit deletes the series of one limit of a policy.
func (v *decisionVecs) removeLimit(policy, limit string) {
	for _, op := range ops {
		for outcome := range count.OutcomeCount {
			v.total.DeleteLabelValues(policy, limit, string(op), outcome.String())
		}
	}
	v.limits.DeleteLabelValues(policy, limit)
	v.windows.DeleteLabelValues(policy, limit)
}

// policySeries are the series of a policy, so that a decision looks its policy up once and hashes no labels.
type policySeries struct {
	name       string
	limits     []limitSeries
	beyond     count.Outcome // of a call that the policy denies
	calls      counters
	degraded   prometheus.Counter
	remembered prometheus.Counter
	refused    map[policy.Reason]prometheus.Counter // by the rules that the policy has
	confirms   bool                                 // a limit depends on confirmations
	countries  map[store.Key]string                 // by key; nil: none are known
	bounds     *bounds                              // of unconfirmed units
	overshootSeries
}

// limitSeries are the counters of a limit. Each exists from its first decision on, since most pairs of operation and
// outcome never occur. That of beyond exists from the first decision under the policy on, at 0, so that Prometheus sees
// the increase by the first denials.
type limitSeries struct {
	name   string
	beyond count.Outcome // of calls past the limit
	total  counters
}

// counters are the counters by operation and outcome.
type counters [len(ops)][count.OutcomeCount]atomic.Pointer[prometheus.Counter]

// SetPolicies sets the policies that have metrics: it publishes their limits and windows, and deletes the series of
// policies and limits that are gone. Decisions under other policies are not counted.
func (m *Metrics) SetPolicies(policies []*policy.Policy) {
	m.setting.Lock()
	defer m.setting.Unlock()
	old := *m.policies.Load()
	series := make(map[string]*policySeries, len(policies))
	for _, p := range policies {
		s := m.newPolicySeries(p, old[p.Name])
		if s.confirms = goesByConfirmation(p); s.confirms {
			s.countries = m.countriesOf(p, policies)
			s.bounds = newBounds(p, derives(policies, p, func(policy.Derivation) bool { return true }), s.countries)
		}
		series[p.Name] = s
	}
	m.policies.Store(&series)
	for name, was := range old {
		is, kept := series[name]
		if !kept {
			m.decisions.remove(was)
			m.confirmations.remove(name)
			continue
		}
		m.decisions.removeRefused(was, is)
		for i := range was.limits {
			if limit := was.limits[i].name; is.limit(i, limit) == nil {
				m.decisions.removeLimit(name, limit)
			}
		}
	}
}

// newPolicySeries returns the series of p, which continue the tally of old if there is one.
func (m *Metrics) newPolicySeries(p *policy.Policy, old *policySeries) *policySeries {
	var tally *overshoot.Tally
	if old != nil {
		tally = old.tally
	}
	s := &policySeries{
		name:            p.Name,
		limits:          make([]limitSeries, len(p.Limits)),
		beyond:          beyond(p, &policy.Limit{}),
		degraded:        m.decisions.degraded.WithLabelValues(p.Name),
		remembered:      m.decisions.remembered.WithLabelValues(p.Name),
		refused:         make(map[policy.Reason]prometheus.Counter),
		overshootSeries: m.decisions.of(p.Name, tally, m.now()),
	}
	for reason, rule := range map[policy.Reason]policy.Choice{
		policy.ReasonCountry: p.Countries, policy.ReasonNumberType: p.NumberTypes,
	} {
		if !rule.IsZero() {
			s.refused[reason] = m.decisions.refused.WithLabelValues(p.Name, string(reason))
		}
	}
	for i, l := range p.Limits {
		s.limits[i].name, s.limits[i].beyond = l.Name, beyond(p, &l)
		m.decisions.limits.WithLabelValues(p.Name, l.Name).Set(float64(l.Limit))
		m.decisions.windows.WithLabelValues(p.Name, l.Name).Set(l.Window.Seconds())
	}
	return s
}

// beyond returns the outcome of calls past a limit.
func beyond(p *policy.Policy, l *policy.Limit) count.Outcome {
	switch {
	case p.Mode == policy.ModeOff:
		return count.OutcomeOff
	case p.Mode == policy.ModeShadow || l.Shadow:
		return count.OutcomeWouldDeny
	}
	return count.OutcomeDenied
}

// limit returns the series of the limit called name, which is likely the i-th, nil if the policy has no such limit.
func (s *policySeries) limit(i int, name string) *limitSeries {
	if i < len(s.limits) && s.limits[i].name == name {
		return &s.limits[i]
	}
	for i := range s.limits {
		if s.limits[i].name == name {
			return &s.limits[i]
		}
	}
	return nil
}

// Observe counts a decision. It keeps nothing of d.
func (m *Metrics) Observe(op count.Op, key store.Key, cost int64, d *count.Decision) {
	s := (*m.policies.Load())[d.Policy.Name]
	if s == nil {
		return
	}
	outcome, by := d.Outcome()
	if limit := s.limit(by, d.Limits()[by].Limit.Name); limit != nil {
		m.countLimit(s, limit, op, outcome)
	}
	if d.Degraded {
		s.degraded.Inc()
	}
	if d.Remembered {
		s.remembered.Inc()
	}
	if s.confirms {
		m.countSent(s, op, key, cost, d)
	}
	if c := s.refused[d.Reason]; c != nil {
		c.Inc()
	}
	if over := overLimit(op, outcome, d); over != nil {
		m.countOver(s, key, cost, d, over)
	}
}

// ObserveCall counts a call for one of its demands. It keeps nothing of p.
func (m *Metrics) ObserveCall(op count.Op, p *policy.Policy, outcome count.Outcome) {
	s := (*m.policies.Load())[p.Name]
	if s == nil {
		return
	}
	m.count(s, &s.calls, op, outcome, func(current *policySeries) prometheus.Counter {
		m.decisions.calls.WithLabelValues(s.name, string(op), current.beyond.String())
		return m.decisions.calls.WithLabelValues(s.name, string(op), outcome.String())
	})
}

// countLimit counts a decision of one limit of s.
func (m *Metrics) countLimit(s *policySeries, limit *limitSeries, op count.Op, outcome count.Outcome) {
	m.count(s, &limit.total, op, outcome, func(current *policySeries) prometheus.Counter {
		if current.limit(0, limit.name) == nil {
			return nil
		}
		for i := range current.limits {
			m.decisions.total.WithLabelValues(s.name, current.limits[i].name, string(op), current.limits[i].beyond.String())
		}
		return m.decisions.total.WithLabelValues(s.name, limit.name, string(op), outcome.String())
	})
}

// count increments a counter of s. create creates it at its first use, from the current series of the policy. It is not
// called, or returns nil, if the policy or the limit is gone, because its series must not come back.
func (m *Metrics) count(
	s *policySeries, of *counters, op count.Op, outcome count.Outcome, create func(current *policySeries) prometheus.Counter,
) {
	at := &of[max(0, slices.Index(ops[:], op))][outcome]
	if known := at.Load(); known != nil {
		(*known).Inc()
		return
	}
	m.setting.Lock()
	defer m.setting.Unlock()
	current := (*m.policies.Load())[s.name]
	if current == nil {
		return
	}
	if made := create(current); made != nil {
		at.Store(&made)
		made.Inc()
	}
}
