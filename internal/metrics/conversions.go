package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Countries are the countries in metrics of confirmations, and their keys under a policy. The zero value has none.
type Countries struct {
	Names []string
	KeyOf func(policy string, id keys.Identifier) (store.Key, error)
}

// confirmationVecs count sent, confirmed and refunded units, of policies that depend on confirmations.
type confirmationVecs struct{ sent, confirmed, refunded *prometheus.CounterVec }

func newConfirmationVecs(auto factory) confirmationVecs {
	labels := []string{"policy", "country"}
	return confirmationVecs{
		sent: auto.counters("ratelimitd_sent_units_total",
			"Units that takes and records counted under policies that depend on confirmations, by derived country.", labels...),
		confirmed: auto.counters("ratelimitd_confirmed_units_total", "Confirmed units among the sent ones.", labels...),
		refunded: auto.counters("ratelimitd_refunded_units_total",
			"Refunded units among the sent ones, for which nothing was sent after all.", labels...),
	}
}

func (v *confirmationVecs) remove(policy string) {
	v.sent.DeletePartialMatch(prometheus.Labels{"policy": policy})
	v.confirmed.DeletePartialMatch(prometheus.Labels{"policy": policy})
	v.refunded.DeletePartialMatch(prometheus.Labels{"policy": policy})
}

// goesByConfirmation reports whether a limit of p depends on confirmations.
func goesByConfirmation(p *policy.Policy) bool {
	return slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.GoesByConfirmation() })
}

// peakLasts is the shortest time that a peak is shown, longer than two intervals of scrapes.
const peakLasts = 5 * time.Minute

// bounds are the used parts of a policy's bounds of unconfirmed units, by country, or under the empty name for a policy
// that calls name. It is nil for a policy without such bounds, or whose keys are not known.
type bounds struct {
	mu    sync.Mutex
	peaks map[string]*peak
}

// peak is the largest part that was used lately.
type peak struct {
	since       time.Time
	now, before float64 // since then, and in the period before
}

// newBounds returns the bounds of p, whose keys have countries. derived says whether other policies derive p.
func newBounds(p *policy.Policy, derived bool, countries map[store.Key]string) *bounds {
	if !slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.Unconfirmed }) || derived && countries == nil {
		return nil
	}
	return &bounds{peaks: make(map[string]*peak)}
}

// note notes the used part of a bound in d.
func (b *bounds) note(country string, d *count.Decision, now time.Time) {
	if b == nil || d.Degraded || d.Blocked || d.Override != "" {
		return
	}
	for i := range d.Limits() {
		l := &d.Limits()[i]
		if holds := l.Used + l.Remaining; l.Limit.Unconfirmed && holds > 0 {
			b.raise(country, float64(l.Used)/float64(holds), now)
		}
	}
}

func (b *bounds) raise(country string, part float64, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.peaks[country]
	if p == nil {
		p = &peak{since: now}
		b.peaks[country] = p
	}
	p.turn(now)
	p.now = max(p.now, part)
}

// turn begins a new period if the current one is over.
func (p *peak) turn(now time.Time) {
	switch age := now.Sub(p.since); {
	case age >= 2*peakLasts:
		*p = peak{since: now}
	case age >= peakLasts:
		*p = peak{since: now, before: p.now}
	}
}

// newUsedBounds returns a collector of the used parts of bounds of unconfirmed units.
func newUsedBounds(m *Metrics) prometheus.Collector {
	s := new(scraped)
	used := s.figure("ratelimitd_unconfirmed_used_ratio",
		"Largest used share of a bound of unconfirmed units in calls of the last minutes, 0 to 1, by policy and country. "+
			"Absent for policies derived from other parts of an identifier.",
		"policy", "country")
	s.collect = func(to chan<- prometheus.Metric) {
		now := m.now()
		for name, of := range *m.policies.Load() {
			if of.bounds == nil {
				continue
			}
			of.bounds.mu.Lock()
			for country, p := range of.bounds.peaks {
				p.turn(now)
				to <- used.is(max(p.now, p.before), name, country)
			}
			of.bounds.mu.Unlock()
		}
	}
	return s
}

// countriesOf returns the countries by their keys under p, if policies derive p from countries.
func (m *Metrics) countriesOf(p *policy.Policy, policies []*policy.Policy) map[store.Key]string {
	if !derives(policies, p, func(d policy.Derivation) bool { return d.From == policy.PartCountry }) || m.Countries.KeyOf == nil {
		return nil
	}
	found := make(map[store.Key]string, len(m.Countries.Names))
	for _, name := range m.Countries.Names {
		if key, err := m.Countries.KeyOf(p.Name, keys.Identifier(name)); err == nil {
			found[key] = name
		}
	}
	return found
}

// derives reports whether one of policies derives p in such a way.
func derives(policies []*policy.Policy, p *policy.Policy, such func(policy.Derivation) bool) bool {
	return slices.ContainsFunc(policies, func(by *policy.Policy) bool {
		return slices.ContainsFunc(by.Derive, func(d policy.Derivation) bool { return d.Policy == p.Name && such(d) })
	})
}

// countSent counts the units that d, a decision of op, counted.
func (m *Metrics) countSent(s *policySeries, op count.Op, key store.Key, cost int64, d *count.Decision) {
	country := s.countries[key]
	s.bounds.note(country, d, m.now())
	if (op == count.OpTake || op == count.OpRecord) && d.Recorded == count.RecordedYes {
		m.confirmations.sent.WithLabelValues(s.name, country).Add(float64(cost))
		m.confirmations.confirmed.WithLabelValues(s.name, country) // at 0, so that a share can be computed
		m.confirmations.refunded.WithLabelValues(s.name, country)
	}
}

// Confirmed counts units of key that are confirmed under a policy.
func (m *Metrics) Confirmed(policy string, key store.Key, units int64) {
	m.countUnits(m.confirmations.confirmed, policy, key, units)
}

// Refunded counts units of key that are refunded under a policy.
func (m *Metrics) Refunded(policy string, key store.Key, units int64) {
	m.countUnits(m.confirmations.refunded, policy, key, units)
}

func (m *Metrics) countUnits(of *prometheus.CounterVec, policy string, key store.Key, units int64) {
	if s := (*m.policies.Load())[policy]; s != nil && s.confirms {
		of.WithLabelValues(policy, s.countries[key]).Add(float64(units))
	}
}
