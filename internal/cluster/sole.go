package cluster

import (
	"cmp"
	"slices"
	"time"
)

// While the load is small, one member owns every slice: requests of one owner are full, those of many
// are nearly empty. All own once the sole owner has more to do than it can, and one owns again after
// a quiet hour.
const (
	busyCPU    = 0.5 // share of the sole owner's processors
	busyMemory = 0.8 // share of the keys that it may remember
	busyFor    = 10 * time.Second
	lateFor    = 500 * time.Millisecond // of answers that are late, beside lateAfter of internal/peer

	// What all members together use is compared with these: it would be the sole owner's load.
	quietCPU    = busyCPU / 4
	quietMemory = busyMemory / 2
	quietFor    = time.Hour

	steadyFor = 30 * time.Second // of beats, after which a member may follow a sole owner that died
)

// Load is how much of what it has an instance uses. The zero value is of one that does nothing.
type Load struct {
	CPU    float64 `json:"cpu,omitempty"`    // share of its processors, 0 to 1
	Memory float64 `json:"memory,omitempty"` // share of the keys that it may remember, 0 to 1
}

// Why says why all members own slices, and not one alone.
type Why string

// The reasons.
const (
	WhyAsked  Why = "asked"      // an instance was started with --owners all
	WhyCPU    Why = "processors" // the sole owner used over half of its processors
	WhyMemory Why = "memory"     // it remembered over four fifths of the keys that it may
	WhyLate   Why = "late"       // it answered peers late, or not at all
	WhySilent Why = "silent"     // it gave no sign of life, though its address did not refuse connections
)

// ownership says who owns slices in a view.
type ownership struct {
	mode Mode
	sole ID  // in mode Sole
	all  Why // empty: one member owns every slice where there are several
}

func (v *View) ownership() ownership { return ownership{v.Mode, v.Sole, v.All} }

// nextOwnership returns who is to own slices in the view after this one, with these members.
func (s *seat) nextOwnership(members []Member) ownership {
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

// nextAll returns why all are to own slices; empty: there is no reason.
func (s *seat) nextAll() Why {
	switch {
	case s.pulse.isAsked():
		return WhyAsked
	case s.view.Mode == Sole:
		return s.pulse.whyTurn(&s.view)
	case s.view.All == WhyAsked, min(s.pulse.quietFor(), time.Since(s.owned)) >= s.cluster.quietFor:
		return ""
	}
	return s.view.All
}

// nextSole returns the member that is to own every slice, or why none is.
func (s *seat) nextSole(members []Member) (ID, Why) {
	can := slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Address == "" })
	slices.SortFunc(can, byAge)
	if s.view.Mode != Sole {
		return can[0].ID, ""
	}
	if slices.ContainsFunc(can, func(m Member) bool { return m.ID == s.view.Sole }) {
		return s.view.Sole, ""
	}
	switch s.pulse.ended(s.view.Sole) {
	case endedSilent:
		return "", WhySilent
	case endedDead:
		return s.pulse.steadiest(can), ""
	}
	return youngest(can, &s.view), ""
}

// byAge sorts members by when they joined, the oldest first. Those that join now come last.
func byAge(a, b Member) int {
	if a.Joined == 0 || b.Joined == 0 {
		return cmp.Or(-cmp.Compare(min(a.Joined, 1), min(b.Joined, 1)), cmp.Compare(a.ID, b.ID))
	}
	return cmp.Or(cmp.Compare(a.Joined, b.Joined), cmp.Compare(a.ID, b.ID))
}

// youngest returns the member of can, sorted by age, that follows a sole owner which leaves: the last to
// join of those that v lists, so that a restart of all in order moves slices twice at most.
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
	endedLeft   ending = iota // it said so, or others had it leave
	endedDead                 // its address refuses connections
	endedSilent               // nobody knows: it may be too busy to give signs of life
)

// ended returns how the member id ended.
func (p *pulse) ended(id ID) ending {
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

// steadiest returns the youngest of can, sorted by age, that has beaten for steadyFor, or else the one
// that has beaten longest: a sole owner that died may have been asked for too much, and so may the next.
func (p *pulse) steadiest(can []Member) ID {
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

// isAsked reports whether any member wants all to own slices.
func (p *pulse) isAsked() bool {
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

// whyTurn returns why v's sole owner is to be one of many; empty: it may stay alone.
func (p *pulse) whyTurn(v *View) Why {
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

// quietFor returns for how long all members together have used so little that one of them could do it all.
func (p *pulse) quietFor() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock - p.loud
}

// measure notes whether members together use little, and which of them are not busy.
func (p *pulse) measure() {
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
