package limiter

import (
	"encoding/binary"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Machine decides by the pure functions alone, over a state that it keeps whole.
type Machine struct {
	plan  *plan
	state store.State
}

// NewMachine returns a Machine that has seen nothing.
func NewMachine(p policy.Policy) *Machine {
	m := &Machine{plan: newPlan(p, testOptions(Options{}), true)}
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
func (m *Machine) Reset(at store.Instant) { m.state.Reset, m.state.Levels = at, nil }

// Fill makes the first limit's bucket hold the largest amount there is.
func (m *Machine) Fill(at store.Instant) {
	m.state.SetLevel(store.Bucket{Limit: m.plan.Rules[0].ID, At: at, Level: store.Amount{Hi: ^uint64(0), Lo: ^uint64(0)}})
}

// WindowAt returns the window of l that holds at: from start on, before end.
func WindowAt(l policy.Limit) func(at store.Instant) (start, end store.Instant) {
	p := newPlan(policy.Policy{Limits: []policy.Limit{l}}, testOptions(Options{}), true)
	return p.Rules[0].WindowAt
}

// CountOf returns a unit of l as it is counted at an instant.
func CountOf(l policy.Limit, at store.Instant) store.Count {
	p := newPlan(policy.Policy{Limits: []policy.Limit{l}}, testOptions(Options{}), true)
	return p.Rules[0].CountOf(0, at, 1)
}

// ResetTTL returns for how long a reset of p is remembered.
func ResetTTL(p policy.Policy) time.Duration {
	return newPlan(p, testOptions(Options{}), true).resetTTL
}

// Longest returns the longest that one of p's windows can last.
func Longest(p policy.Policy) time.Duration { return p.WithDefaults().LongestWindow() }

// PrintOf returns what tells the definition of one of e's policies from others.
func PrintOf(e *Engine, policy string) uint64 { return e.plans.Load().of(policy).print }

// RememberDenials has an engine's memory of denials take one for each of n keys, each
// with so many events, and returns how many keys and events it holds then.
func RememberDenials(n, each int) (keys, events int) {
	log := policy.Limit{Algorithm: "sliding-log", Limit: int64(each), Window: time.Hour}
	p := newPlan(policy.Policy{Limits: []policy.Limit{log}}, testOptions(Options{}), false)
	d := &denials{opts: testOptions(Options{StoreTimeout: time.Second})}
	now := store.InstantOf(time.Now())
	state := store.State{Logs: []store.Log{{Events: make([]store.Event, each)}}}
	for i := range state.Logs[0].Events {
		state.Logs[0].Events[i] = store.Event{At: now, Cost: 1}
	}
	for i := range n {
		var sum [store.KeySize]byte
		binary.BigEndian.PutUint64(sum[:], uint64(i))
		t := target{plan: p, key: store.KeyFrom(sum)}
		d.put(&t, &state, false, false, now, 0)
	}
	for _, generation := range []map[store.Key]*denial{d.young, d.old} {
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

// testOptions returns o with all defaults filled in.
func testOptions(o Options) *Options {
	o = o.withDefaults()
	return &o
}
