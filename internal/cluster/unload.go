package cluster

import (
	"context"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"
)

// A member may have units only in memory, and write them only before their slots move. Before a change of owners that
// nothing forces, such as a join, the member whose turn it is to propose the next view announces it as a Plan in its
// heartbeats. The members that would lose slots write the units of these slots while they go on deciding, and report that
// in their heartbeats. Then the view is proposed. A member that leaves writes all its units first.

// Plan is a view that a member wants to propose.
type Plan struct {
	Mode    Mode     `json:"mode"`
	Sole    ID       `json:"sole,omitempty"`
	Members []Member `json:"members"`
}

// sum returns a hash of p's owners.
func (p *Plan) sum() uint64 {
	h := fnv.New64a()
	ids := idsOf(p.Members)
	slices.Sort(ids)
	for _, id := range append(ids, ID(p.Mode), p.Sole) {
		h.Write(append([]byte(id), 0))
	}
	return h.Sum64()
}

// unloading is this member's work before slots move.
type unloading struct {
	view int64    // the view in which it began
	sums []uint64 // sums of the plans, in order; nil: the member leaves
	stop context.CancelFunc
	over chan struct{} // closed when it is done, or has failed
	done atomic.Bool
}

const unloadRetry = time.Second

// isUnloaded reports whether a view of these members may be proposed: all members have written the units that they have
// only in memory in slots that move. If not, it announces that view. Members that are cut off, and a sole owner that
// answers late, are not waited for.
func (s *membership) isUnloaded(members []Member, own ownership) bool {
	if own.mode == Shared || own.all == WhyLate && s.view.All != WhyLate {
		return true
	}
	p := &Plan{Mode: own.mode, Sole: own.sole, Members: members}
	if s.heartbeats.haveUnloaded(&s.view, p.sum()) {
		return true
	}
	s.heartbeats.plan.Store(p)
	return false
}

// haveUnloaded reports whether the living members of v have unloaded for the plan with that sum, or have nothing to
// unload.
func (p *heartbeats) haveUnloaded(v *View, sum uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range v.Members {
		unloads, done := p.unloads != nil && p.unloads(), p.done
		if m.ID != p.self.ID {
			h := p.heard[m.ID]
			if h == nil || !p.isAlive(h) {
				continue
			}
			unloads, done = h.beat.Unloads, h.beat.Unloaded
		}
		if unloads && !slices.Contains(done, sum) {
			return false
		}
	}
	return true
}

// plans returns the plans that living members announce, including this one's.
func (p *heartbeats) plans() (all []*Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if plan := p.plan.Load(); plan != nil {
		all = append(all, plan)
	}
	for id, h := range p.heard {
		if id != p.self.ID && p.isAlive(h) && h.beat.Plan != nil {
			all = append(all, h.beat.Plan)
		}
	}
	return all
}

// unload begins to unload for plans, unless that is under way, and reports it to the others once it is done.
func (s *membership) unload(plans []*Plan) {
	if s.cluster.opts.Unload == nil {
		return
	}
	var sums []uint64
	for _, p := range plans {
		sums = append(sums, p.sum())
	}
	slices.Sort(sums)
	sums = slices.Compact(sums)
	switch u := s.unloading; {
	case u == nil && len(sums) == 0: // no plan needs it
	case u != nil && u.sums == nil: // this member leaves, and unloads all slots
	case u == nil || u.view != s.view.Number || !slices.Equal(u.sums, sums):
		if s.stopUnloading(); len(sums) > 0 {
			s.beginUnloading(sums, s.movesBy(plans))
		}
	case u.done.Load():
		s.heartbeats.unloaded(sums)
	}
}

// unloaded notes that this member has unloaded for the plans with these sums.
func (p *heartbeats) unloaded(sums []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = sums
}

// movesBy returns a function that reports whether this member would lose a slot by any of plans.
func (s *membership) movesBy(plans []*Plan) func(slot int) bool {
	var moves [Slots]bool
	for _, p := range plans {
		v := View{Mode: p.Mode, Sole: p.Sole, Members: p.Members}
		for slot, i := range v.owners() {
			moves[slot] = moves[slot] || i < 0 || v.Members[i].ID != s.self.ID
		}
	}
	return func(slot int) bool { return moves[slot] }
}

// beginUnloading begins to unload the slots that move by the plans with these sums; nil: because this member leaves.
func (s *membership) beginUnloading(sums []uint64, moves func(slot int) bool) {
	ctx, stop := context.WithCancel(s.lasting)
	u := &unloading{view: s.view.Number, sums: sums, stop: stop, over: make(chan struct{})}
	s.unloading = u
	s.handing.Go(func() {
		defer close(u.over)
		for {
			err := s.cluster.opts.Unload(ctx, moves)
			if u.done.Store(err == nil); err == nil {
				s.cluster.look()
				return
			}
			if ctx.Err() != nil {
				return
			}
			s.cluster.opts.Logger.Warn("units that are only in memory can't be written, and slots wait to move", "error", err)
			if sums == nil { // a member that leaves does not wait for a store that fails
				return
			}
			select {
			case <-time.After(unloadRetry):
			case <-ctx.Done():
			}
		}
	})
}

// stopUnloading ends the unloading that is under way, and lets units of all slots be kept only in memory again.
func (s *membership) stopUnloading() {
	if s.unloading == nil {
		return
	}
	s.unloading.stop()
	<-s.unloading.over
	s.unloading = nil
	s.heartbeats.unloaded(nil)
	_ = s.cluster.opts.Unload(s.lasting, nil)
}

// mayLeave reports whether this member can leave now: it has written the units that it had only in memory, or failed to
// write them. If need be, it begins to write them.
func (s *membership) mayLeave() bool {
	if s.cluster.opts.Unload == nil || s.cluster.opts.MayUnload == nil || !s.cluster.opts.MayUnload() || !s.isIn() {
		return true
	}
	if s.unloading == nil || s.unloading.sums != nil {
		s.stopUnloading()
		s.beginUnloading(nil, func(int) bool { return true })
	}
	select {
	case <-s.unloading.over:
		return true
	default:
		return false
	}
}
