package limiter

import (
	"encoding/binary"
	"time"
)

// Machine decides by the pure functions alone, over a state that it keeps whole.
type Machine struct {
	plan  *plan
	state State
}

// NewMachine returns a Machine that has seen nothing.
func NewMachine(p Policy) *Machine {
	m := &Machine{plan: newPlan(p, &Options{}, true)}
	m.state.Logs = make([]Log, len(m.plan.logs))
	return m
}

// Do decides and, unless op is OpCheck, remembers.
func (m *Machine) Do(op Op, now Instant, cost int64) Decision {
	var d Decision
	m.plan.decide(&d, &m.state, op, EventID{}, now, cost)
	return d
}

// KnowSums has m's logs know the sums of their costs, as a store may.
func (m *Machine) KnowSums() {
	for i := range m.state.Logs {
		m.state.Logs[i].Sum = SumOf(m.state.Logs[i].Events)
	}
}

// Reset forgets everything at or before at.
func (m *Machine) Reset(at Instant) { m.state.Reset, m.state.levels = at, nil }

// Fill makes the first limit's bucket hold the largest amount there is.
func (m *Machine) Fill(at Instant) {
	m.state.setLevel(bucket{limit: m.plan.rules[0].id, at: at, level: amount{^uint64(0), ^uint64(0)}})
}

// Amount is an amount for tests of its arithmetic.
type Amount = amount

// AmountOf returns units × parts.
func AmountOf(units, parts int64) Amount { return amountOf(units, parts) }

// Plus returns a + b.
func (a amount) Plus(b amount) amount { return a.plus(b) }

// Minus returns a − b.
func (a amount) Minus(b amount) amount { return a.minus(b) }

// Over returns a / parts.
func (a amount) Over(parts int64) int64 { return a.over(parts) }

// Words returns a's upper and lower half.
func (a amount) Words() (hi, lo uint64) { return a.hi, a.lo }

// WindowAt returns the window of l that holds at: from start on, before end.
func WindowAt(l Limit) func(at Instant) (start, end Instant) {
	p := newPlan(Policy{Limits: []Limit{l}}, &Options{}, true)
	return p.rules[0].windowAt
}

// CountOf returns a unit of l as it is counted at an instant.
func CountOf(l Limit, at Instant) Count {
	p := newPlan(Policy{Limits: []Limit{l}}, &Options{}, true)
	return p.rules[0].countOf(0, at, 1)
}

// ResetTTL returns for how long a reset of p is remembered.
func ResetTTL(p Policy) time.Duration { return newPlan(p, &Options{}, true).resetTTL }

// Longest returns the longest that one of p's windows can last.
func Longest(p Policy) time.Duration { return p.WithDefaults().longestWindow() }

// PrintOf returns what tells the definition of one of e's policies from others.
func PrintOf(e *Engine, policy string) uint64 { return e.plans.Load().of(policy).print }

// RememberDenials has an engine's memory of denials take one for each of n keys, each
// with so many events, and returns how many keys and events it holds then.
func RememberDenials(n, each int) (keys, events int) {
	p := newPlan(Policy{Limits: []Limit{{Algorithm: "sliding-log", Limit: int64(each), Window: time.Hour}}}, &Options{}, false)
	d := &denials{opts: &Options{StoreTimeout: time.Second}}
	now := InstantOf(time.Now())
	state := State{Logs: []Log{{Events: make([]Event, each)}}}
	for i := range state.Logs[0].Events {
		state.Logs[0].Events[i] = Event{At: now, Cost: 1}
	}
	for i := range n {
		t := target{plan: p}
		binary.BigEndian.PutUint64(t.key.sum[:], uint64(i))
		d.put(&t, &state, false, false, now, 0)
	}
	for _, generation := range []map[Key]*denial{d.young, d.old} {
		keys += len(generation)
		for _, memory := range generation {
			events += len(memory.state.Logs[0].Events)
		}
	}
	return keys, events
}

// Bounds of what RememberDenials returns.
const (
	MaxDenials      = 2 * maxDenials
	MaxDenialEvents = 2 * maxDenialEvents
)

// MaxUnwrittenKeys is how many keys may wait to be written.
const MaxUnwrittenKeys = maxUnwrittenKeys
