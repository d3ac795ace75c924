package api

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Bytes of memory that deciding a call and answering it take at most, beside names:
// TestRoomIsEnough holds them.
const (
	callRoom     = 1000 // a call, alone or in a batch
	decisionRoom = 800  // a decision under a policy, with its part of a receipt
	limitRoom    = 300  // a decision of one limit
	// freeAnswerLen is how much of every answer there is room for whatever others take: those
	// of one demand under a policy of limiter.MaxLimits are shorter.
	freeAnswerLen = 12 << 10
	// tokenRoom is how many bytes of a reservation are there for one of its demands, at least.
	tokenRoom = 64
)

// roomFor returns the room of a decision under a policy, without what it derives.
func roomFor(p *limiter.Policy) (room int64) {
	room = decisionRoom + 2*int64(len(p.Name))
	for i := range p.Limits {
		room += limitRoom + 2*int64(len(p.Limits[i].Name))
	}
	return room
}

// room returns that of c, by the policies in force.
func (c *call) room(policy func(name string) (*limiter.Policy, bool)) int64 {
	sum, most, decisions := int64(callRoom), int64(0), 0
	add := func(p *limiter.Policy) {
		room := roomFor(p)
		sum, most, decisions = sum+room, max(most, room), decisions+1
	}
	for i := range c.Demands {
		p, known := policy(c.Demands[i].Policy)
		if !known {
			sum += decisionRoom // at most, of the problem that it is
			continue
		}
		add(p)
		for j := range p.Derive {
			if p, known := policy(p.Derive[j].Policy); known {
				add(p)
			}
		}
	}
	if len(c.Demands) == 0 { // the reservation knows the demands
		decisions = min(1+len(c.Reservation)/tokenRoom, limiter.MaxDemands)
		most = decisionRoom + limiter.MaxLimits*limitRoom
		sum += int64(decisions) * most
	}
	if decisions > 1 || c.listed {
		sum += most // the call's own decision is its tightest demand's once more
	}
	return sum
}

// roomOf returns the room of deciding ops and answering them.
func (m *scratch) roomOf(ops []operation) (sum int64) {
	for i := range ops {
		sum += m.room(&ops[i].call)
	}
	return sum
}

// room returns that of deciding c and answering it.
func (m *scratch) room(c *call) int64 {
	if m.bodies == nil {
		return 0 // nothing bounds it
	}
	return c.room(m.bodies.policy)
}

// reserve charges room for an answer. The error is errBusy where there is none; nothing was done
// then.
func (m *scratch) reserve(room int64) error {
	if !m.charge(m.held(room)) {
		m.discharge()
		return &callError{recorded: limiter.RecordedNo, err: errBusy}
	}
	m.reserved = room
	return nil
}

// held returns how many bytes are charged for m with an answer of so many.
func (m *scratch) held(answer int64) int { return cap(m.in) + int(max(0, answer-freeAnswerLen)) }

// pay charges the buffers that an earlier request left, which may be longer than this one needs. Where
// there is no room for them it does without.
func (m *scratch) pay() {
	if !m.charge(m.held(int64(cap(m.out)))) {
		m.in, m.out = nil, nil
	}
}

// settle charges what stays in memory until the answer in out was sent, instead of what was
// reserved. It reports whether there is room for it.
func (m *scratch) settle() bool {
	if cap(m.operations) > maxKeptOperations {
		m.operations = nil // what became of them is in out
	}
	if cap(m.in) > maxScratchLen {
		m.in = nil
	}
	now := m.held(int64(cap(m.out)))
	if spare := m.charged - max(0, int64(now)-freeBodyLen); spare > 0 {
		m.bodies.taken.Add(-spare)
		m.charged -= spare
	}
	return m.charge(now)
}
