package cluster

import (
	"maps"
	"slices"
	"sync"
)

// Reach is the state of an instance's way to a member.
type Reach int

// The values of Reach.
const (
	Reached   Reach = iota // it answers, or it is not known yet
	Late                   // it answers late
	Unreached              // it does not answer
	Refused                // connections to its address are refused: its process is gone, or the way is cut
)

// ways holds the state of this instance's way to each member. A member without an entry is reached.
type ways struct {
	changed chan struct{} // holds a token if a state has changed

	mu  sync.Mutex
	ids map[ID]Reach
}

// Reach sets the state of this instance's way to id.
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

// Others returns the other members of the latest view that have an address, and a channel that is closed when they may
// have changed.
func (c *Cluster) Others() (others []Member, changed <-chan struct{}) {
	r := c.routes.Load()
	return r.others(), r.changed
}

func (r *routes) others() (others []Member) {
	for _, m := range r.view.Members {
		if m.Address != "" && (r.membership == nil || m.ID != r.membership.self.ID) {
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

// put sets the state of the way to id. It reports whether that is a change.
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

// keep removes the members that are not in known, as one that is gone for good would refuse connections for ever.
func (w *ways) keep(known map[ID]*heard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.ids, func(id ID, _ Reach) bool { return known[id] == nil })
}

// list returns the members whose way is in this state, in order.
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

// lost returns the members that b's member does not reach.
func (b *Heartbeat) lost() []ID { return slices.Concat(b.Refused, b.Unreached) }
