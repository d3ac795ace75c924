package cluster

import (
	"context"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"
)

// A member may have units in memory alone, and write them only before their slots move. In a change of owners that
// nothing forces, such as a join, the member whose turn it is to propose the next view announces it in its heartbeats. The
// others write what they would lose by it while they go on deciding, and say so in theirs; then it proposes the view. A
// member that leaves writes all first.

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
	view int64    // in which it began
	of   []uint64 // sums of the plans, in order; nil: the member leaves
	stop context.CancelFunc
	over chan struct{} // closed when it is done, or has failed
	done atomic.Bool
}

const unloadRetry = time.Second

// isUnloaded reports whether all members have written the counts that move with a view of these
// members. If not, it announces that view. It does not wait for members that are cut off, or for a
// sole owner that answers late.
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

// plans returns the plans that living members announce, this one's too.
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

// unload begins to unload for plans, unless that is under way, and tells others once it is done.
func (s *membership) unload(plans []*Plan) {
	if s.cluster.opts.Unload == nil {
		return
	}
	var of []uint64
	for _, p := range plans {
		of = append(of, p.sum())
	}
	slices.Sort(of)
	of = slices.Compact(of)
	switch u := s.unloading; {
	case u == nil && len(of) == 0, u != nil && u.of == nil: // it leaves
	case u == nil || u.view != s.view.Number || !slices.Equal(u.of, of):
		if s.stopUnloading(); len(of) > 0 {
			s.beginUnloading(of, s.movesBy(plans))
		}
	case u.done.Load():
		s.heartbeats.unloaded(of)
	}
}

// unloaded notes that this member has unloaded for the plans with these sums.
func (p *heartbeats) unloaded(of []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = of
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

// beginUnloading begins to unload slots that move for plans with these sums.
func (s *membership) beginUnloading(of []uint64, moves func(slot int) bool) {
	ctx, stop := context.WithCancel(s.lasting)
	u := &unloading{view: s.view.Number, of: of, stop: stop, over: make(chan struct{})}
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
			s.cluster.opts.Logger.Warn("counts that are in memory alone can't be written, and slots wait to move", "error", err)
			if of == nil { // a stop does not wait for a store that takes nothing
				return
			}
			select {
			case <-time.After(unloadRetry):
			case <-ctx.Done():
			}
		}
	})
}

// stopUnloading ends unloading that is under way: no slot moves.
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

// mayLeave reports whether this member, which leaves, has written all that it has in memory alone, or can't.
func (s *membership) mayLeave() bool {
	if s.cluster.opts.Unload == nil || s.cluster.opts.MayUnload == nil || !s.cluster.opts.MayUnload() || !s.isIn() {
		return true
	}
	if s.unloading == nil || s.unloading.of != nil {
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
