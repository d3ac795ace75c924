package cluster

import (
	"cmp"
	"slices"
	"time"
)

// While the load is small, one member owns every slot: the batches of one owner are full, those of many are nearly
// empty. All members own slots once the sole owner is overloaded, and one owns all again after a quiet hour.
const (
	busyCPU    = 0.5 // share of the sole owner's processors
	busyMemory = 0.8 // share of its --max-keys
	busyFor    = 10 * time.Second
	lateFor    = 500 * time.Millisecond // how long its answers must be late, which they are after lateAfter of internal/peer

	// The members' total load, which would be the sole owner's, is compared with these.
	quietCPU    = busyCPU / 4
	quietMemory = busyMemory / 2
	quietFor    = time.Hour

	steadyFor = 30 * time.Second // a member may succeed a sole owner that died after heartbeats without a gap for this long
)

// Load is the share of its resources that an instance uses. The zero value is that of an idle instance.
type Load struct {
	CPU    float64 `json:"cpu,omitempty"`    // share of its processors, 0 to 1
	Memory float64 `json:"memory,omitempty"` // share of its --max-keys, 0 to 1
}

// Why is the reason why all members own slots instead of one.
type Why string

// The reasons.
const (
	WhyAsked  Why = "asked"      // an instance was started with --owners all
	WhyCPU    Why = "processors" // the sole owner used over half of its processors
	WhyMemory Why = "memory"     // it had over four fifths of its --max-keys in memory
	WhyLate   Why = "late"       // it answered peers late, or not at all
	WhySilent Why = "silent"     // it did not beat, though its address did not refuse connections
)

// ownership is the way in which slots are owned in a view.
type ownership struct {
	mode Mode
	sole ID  // in mode Sole
	all  Why // empty: one of several members owns every slot
}

func (v *View) ownership() ownership { return ownership{v.Mode, v.Sole, v.All} }

// nextOwnership returns the ownership of the next view, with these members.
func (s *membership) nextOwnership(members []Member) ownership {
	next := ownership{mode: modeFor(members), all: s.nextAll()}
	if next.mode == Shared || len(members) == 1 {
		return next
	}
	if s.isCut(members) {
		next.mode = Shared
		return next
	}
	if next.all != "" {
		return next
	}
	sole, why := s.nextSole(members)
	if why != "" {
		next.all = why
		return next
	}
	return ownership{mode: Sole, sole: sole}
}

// nextAll returns the reason for all to own slots, empty if there is none.
func (s *membership) nextAll() Why {
	switch {
	case s.heartbeats.isAsked():
		return WhyAsked
	case s.view.Mode == Sole:
		return s.heartbeats.whyNotSole(&s.view)
	case s.view.All == WhyAsked, min(s.heartbeats.quietFor(), time.Since(s.owned)) >= s.cluster.quietFor:
		return ""
	}
	return s.view.All
}

// nextSole returns the member that should own every slot, or the reason for none.
func (s *membership) nextSole(members []Member) (ID, Why) {
	can := reachable(members)
	if s.view.Mode != Sole {
		return can[0].ID, ""
	}
	if slices.ContainsFunc(can, func(m Member) bool { return m.ID == s.view.Sole }) {
		return s.view.Sole, ""
	}
	switch s.heartbeats.ended(s.view.Sole) {
	case endedSilent:
		return "", WhySilent
	case endedDead:
		return s.heartbeats.steadiest(can), ""
	}
	return youngest(can, &s.view), ""
}

// reachable returns the members with an address, sorted by age.
func reachable(members []Member) []Member {
	can := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Address == "" })
	slices.SortFunc(can, byAge)
	return can
}

// byAge orders members by the view in which they joined, the oldest first. Those that join now come last.
func byAge(a, b Member) int {
	if a.Joined == 0 || b.Joined == 0 {
		return cmp.Or(-cmp.Compare(min(a.Joined, 1), min(b.Joined, 1)), cmp.Compare(a.ID, b.ID))
	}
	return cmp.Or(cmp.Compare(a.Joined, b.Joined), cmp.Compare(a.ID, b.ID))
}

// youngest returns the member of can, sorted by age, that succeeds a sole owner that leaves: the last to join of those
// that v lists, so that a restart of all members in order moves slots at most twice.
func youngest(can []Member, v *View) ID {
	for _, m := range slices.Backward(can) {
		if v.Lists(m.ID) {
			return m.ID
		}
	}
	return can[0].ID
}

// How a member ended.
type ending int

const (
	endedLeft   ending = iota // it left, or others set it out
	endedDead                 // its address refuses connections
	endedSilent               // it may be dead, or too busy for heartbeats
)

// ended returns how the membership of id ended.
func (p *heartbeats) ended(id ID) ending {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.heard[id]
	switch {
	case h == nil || h.beat.Left:
		return endedLeft
	case p.ways.to(id) == Refused || p.isRefusedByOthers(id) || p.isReplaced(h):
		return endedDead
	case p.isSilent(h):
		return endedSilent
	}
	return endedLeft
}

// steadiest returns the youngest of can, sorted by age, that has sent heartbeats without a gap for steadyFor, or else the
// one that has done so the longest. The sole owner may have died of its load, which its successor takes over.
func (p *heartbeats) steadiest(can []Member) ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest, most := can[0].ID, time.Duration(-1)
	for _, m := range slices.Backward(can) {
		h := p.heard[m.ID]
		if h == nil {
			continue
		}
		if h.last-h.steady >= steadyFor {
			return m.ID
		}
		if h.last-h.steady > most {
			longest, most = m.ID, h.last-h.steady
		}
	}
	return longest
}

// isAsked reports whether any member wants all members to own slots.
func (p *heartbeats) isAsked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all {
		return true
	}
	for _, h := range p.heard {
		if h.beat.All && p.isAlive(h) {
			return true
		}
	}
	return false
}

// whyNotSole returns the reason why all members should own slots instead of v's sole owner, empty if there is none.
func (p *heartbeats) whyNotSole(v *View) Why {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.heard[v.Sole]
	if h == nil || !p.isAlive(h) {
		return ""
	}
	switch {
	case h.last-h.idle >= p.busyFor:
		return WhyCPU
	case h.beat.Load.Memory > busyMemory:
		return WhyMemory
	}
	for _, m := range v.Members {
		other := p.heard[m.ID]
		if other == nil || !p.isAlive(other) {
			continue
		}
		since, late := other.late[v.Sole]
		if late && min(h.last, other.last)-max(since, h.steady, other.steady) >= lateFor {
			return WhyLate
		}
	}
	return ""
}

// quietFor returns how long the members' total load has been small enough for one of them.
func (p *heartbeats) quietFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock - p.loud
}

// measure notes whether the members' total load is small, and which of them are not busy.
func (p *heartbeats) measure() {
	var all Load
	for _, h := range p.heard {
		if !p.isAlive(h) {
			continue
		}
		if h.beat.Load.CPU <= busyCPU {
			h.idle = h.last
		}
		all.CPU += h.beat.Load.CPU
		all.Memory += h.beat.Load.Memory
	}
	if all.CPU > quietCPU || all.Memory > quietMemory {
		p.loud = p.clock
	}
}
