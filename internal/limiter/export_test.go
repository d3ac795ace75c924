package limiter

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Machine decides by the pure functions alone, over a state that it keeps whole.
type Machine struct {
	plan  *demand.Plan
	state store.State
}

// NewMachine returns a Machine that has seen nothing.
func NewMachine(p policy.Policy) *Machine {
	m := &Machine{plan: demand.NewPlan(p, testSettings(Options{}), true)}
	m.state.Logs = make([]store.Log, len(m.plan.Logs))
	return m
}

// Do decides and, unless op is OpCheck, remembers.
func (m *Machine) Do(op count.Op, now store.Instant, cost int64) count.Decision {
	var d count.Decision
	m.plan.Decide(&d, &m.state, op, store.EventID{}, now, cost)
	return d
}

// KnowSums has m's logs know the sums of their costs, as a store may.
func (m *Machine) KnowSums() {
	for i := range m.state.Logs {
		m.state.Logs[i].Sum = store.SumOf(m.state.Logs[i].Events)
	}
}

// Reset forgets everything at or before at.
func (m *Machine) Reset(at store.Instant) {
	m.state.Reset, m.state.Buckets, m.state.Conversions = at, nil, nil
}

// GiveBack gives back cost units that were counted at an instant, or confirms them.
func (m *Machine) GiveBack(now, at store.Instant, cost int64, confirmed bool) {
	m.plan.GiveBack(&m.state, &count.Entry{At: at, Cost: cost, Confirmed: confirmed}, now)
}

// Fill makes the first limit's bucket hold the largest amount there is.
func (m *Machine) Fill(at store.Instant) {
	m.state.SetBucket(store.Bucket{Limit: m.plan.Rules[0].ID, At: at, Fill: store.Amount{Hi: ^uint64(0), Lo: ^uint64(0)}})
}

// WindowAt returns the window of l that holds at: from start on, before end.
func WindowAt(l policy.Limit) func(at store.Instant) (start, end store.Instant) {
	p := demand.NewPlan(policy.Policy{Limits: []policy.Limit{l}}, testSettings(Options{}), true)
	return p.Rules[0].WindowAt
}

// CountOf returns a unit of l as it is counted at an instant.
func CountOf(l policy.Limit, at store.Instant) store.Count {
	p := demand.NewPlan(policy.Policy{Limits: []policy.Limit{l}}, testSettings(Options{}), true)
	return p.Rules[0].CountOf(0, at, 1)
}

// ResetTTL returns for how long a reset of p is remembered.
func ResetTTL(p policy.Policy) time.Duration {
	return demand.NewPlan(p, testSettings(Options{}), true).ResetTTL
}

// Longest returns the longest that one of p's windows can last.
func Longest(p policy.Policy) time.Duration { return p.WithDefaults().LongestWindow() }

// DefinitionOf returns the definition of one of e's policies, with its text.
func DefinitionOf(e *Engine, policy string) *demand.Definition {
	p := e.plans.inForce.Load().byName[policy]
	d := p.Definition
	d.Text = p.Text()
	return &d
}

// Forget drops what e has in memory of key.
func (e *Engine) Forget(key store.Key) { e.decider.Changed(key) }

// MaxUnwrittenKeys is how many keys may wait to be written.
const MaxUnwrittenKeys = counted.MaxUnwrittenKeys

// testSettings returns what o says, with all defaults filled in.
func testSettings(o Options) *demand.Settings { return o.settings() }
