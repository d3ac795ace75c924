package memory

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Upper bounds of the bytes for deciding a call and answering it, without names. TestRoomIsEnough of the API checks
// them.
const (
	callRoom     = 1000 // a call, alone or in a batch
	decisionRoom = 800  // a decision under a policy, with its part of a receipt
	limitRoom    = 300  // a decision of one limit
	// tokenRoom is the least number of bytes of a reservation for one of its demands.
	tokenRoom = 64
)

// Room returns the bytes for deciding and answering c by the policies in force, 0 without a bound. listed says that the
// answer lists the demands.
func (s *Share) Room(c *limiter.Call, listed bool) int64 {
	if s.pool == nil {
		return 0
	}
	return roomOf(c, listed, s.pool.policy)
}

func roomOf(c *limiter.Call, listed bool, pol func(name string) (*policy.Policy, bool)) int64 {
	sum, most, decisions := int64(callRoom), int64(0), 0
	add := func(p *policy.Policy) {
		room := roomUnder(p)
		sum, most, decisions = sum+room, max(most, room), decisions+1
	}
	for i := range c.Demands {
		p, known := pol(c.Demands[i].Policy)
		if !known {
			sum += decisionRoom // for the problem in the answer
			continue
		}
		add(p)
		for j := range p.Derive {
			if p, known := pol(p.Derive[j].Policy); known {
				add(p)
			}
		}
	}
	if len(c.Demands) == 0 && c.Reservation != "" { // it knows the demands
		decisions = min(1+len(c.Reservation)/tokenRoom, policy.MaxDemands)
		most = decisionRoom + policy.MaxLimits*limitRoom
		sum += int64(decisions) * most
	}
	if decisions > 1 || listed {
		sum += most // the call's own decision is its tightest demand's once more
	}
	return sum
}

// roomUnder returns the bytes for a decision under a policy, without those for derived policies.
func roomUnder(p *policy.Policy) (room int64) {
	room = decisionRoom + 2*int64(len(p.Name))
	for i := range p.Limits {
		room += limitRoom + 2*int64(len(p.Limits[i].Name))
	}
	return room
}
