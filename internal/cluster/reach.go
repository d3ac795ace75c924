package cluster

import (
	"maps"
	"slices"
	"sync"
)

// Reach is how an instance reaches a member.
type Reach int

// What an instance knows of its way to a member.
const (
	Reached   Reach = iota // it answers, or nothing is known yet
	Late                   // it answers late
	Unreached              // it does not answer
	Refused                // connections to its address are refused: its process is gone, or the way is cut
)

// ways is how this instance reaches members. What is not in it is reached.
type ways struct {
	changed chan struct{} // holds a token when something has changed

	mu  sync.Mutex
	ids map[ID]Reach
}

// Reach notes how this instance reaches id from now on.
func (c *Cluster) Reach(id ID, how Reach) {
	if !c.ways.put(id, how) {
		return
	}
	select {
	case c.ways.changed <- struct{}{}:
	default:
	}
	c.look()
}

// Others returns the members of the latest view that others can reach, but for this instance, and
// what is closed when they may be others.
func (c *Cluster) Others() (others []Member, changed <-chan struct{}) {
	r := c.routes.Load()
	return r.others(), r.changed
}

func (r *routes) others() (others []Member) {
	for _, m := range r.view.Members {
		if m.Address != "" && (r.seat == nil || m.ID != r.seat.self.ID) {
			others = append(others, m)
		}
	}
	return others
}

// unreached returns the members of r's view that this instance does not reach.
func (c *Cluster) unreached(r *routes) (all []Member) {
	for _, m := range r.others() {
		if how := c.ways.to(m.ID); how == Refused || how == Unreached {
			all = append(all, m)
		}
	}
	return all
}

// put reports whether it was not so before.
func (w *ways) put(id ID, how Reach) (changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ids[id] == how {
		return false
	}
	if how == Reached {
		delete(w.ids, id)
		return true
	}
	if w.ids == nil {
		w.ids = make(map[ID]Reach)
	}
	w.ids[id] = how
	return true
}

func (w *ways) to(id ID) Reach {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ids[id]
}

// keep forgets all but those that were heard of: who is gone for good refuses for ever.
func (w *ways) keep(known map[ID]*heard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.ids, func(id ID, _ Reach) bool { return known[id] == nil })
}

// list returns the members that are reached so, in order.
func (w *ways) list(how Reach) (ids []ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, is := range w.ids {
		if is == how {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// lost returns the members that b's does not reach.
func (b *Beat) lost() []ID { return slices.Concat(b.Refused, b.Unreached) }
