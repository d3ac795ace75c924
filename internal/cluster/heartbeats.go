package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// heartbeats makes a member's heartbeats, and reads those of others.
type heartbeats struct {
	store   Store
	self    Member
	ways    *ways
	look    func()      // makes the membership read the view
	joined  atomic.Bool // this member has a row, and sends heartbeats
	hurries atomic.Bool // slots have owners, so that a dead member's keys wait for another owner
	all     bool        // this member wants all members to own slots
	load    func() Load // nil: no load
	busyFor time.Duration
	unloads func() bool          // of Options.MayUnload; nil: never
	plan    atomic.Pointer[Plan] // the plan that this member announces; nil: none

	mu    sync.Mutex
	count int64
	heard map[ID]*heard
	at    time.Time     // when heartbeats were read last; zero: never
	clock time.Duration // how long this member has listened, so that none seems silent only because it did not listen
	done  []uint64      // sums of the plans for which this member has unloaded
	loud  time.Duration // when, by clock, the members' total load was last too much for one of them
}

// heard is the state of one member by its heartbeats. Times are by heartbeats.clock.
type heard struct {
	beat   Heartbeat
	last   time.Duration        // when its count last changed
	steady time.Duration        // when its last heartbeats without a gap began
	lost   map[ID]time.Duration // members that it does not reach, and since when
	beats  int                  // number of changes of its count
	late   map[ID]time.Duration // members that it does not reach or that answer it late, and since when
	idle   time.Duration        // when it was last not busy
}

const (
	heartbeatEvery    = 200 * time.Millisecond
	hurryEvery        = 100 * time.Millisecond // the interval while a member is not reached
	heartbeatTimeout  = time.Second            // for one heartbeat, or one read of others'
	longestDeaf       = 2 * heartbeatEvery     // the most time between two reads that counts as listening
	gapAfter          = time.Second            // a silence this long is a gap in a member's heartbeats
	forgetHeartbeatAt = time.Minute            // a member is forgotten after a silence this long
)

// The time without a heartbeat after which a member is taken for dead.
const (
	silentFor  = 2500 * time.Millisecond
	refusedFor = 900 * time.Millisecond // if the member refuses this instance's connections
	goneFor    = 400 * time.Millisecond // if it refuses another member's, too, or if another member has its address
)

// cutFor is how long two members must send heartbeats without reaching each other before they count as cut off. A member
// that stood still is reached again sooner.
const cutFor = time.Second

// HeartbeatTTL is how long a store keeps a heartbeat that is not renewed.
const HeartbeatTTL = 10 * time.Second

// run reads heartbeats, and sends its own once this member has joined, until ctx ends.
func (p *heartbeats) run(ctx context.Context) {
	for ctx.Err() == nil {
		if p.joined.Load() {
			p.beat(ctx, false)
		}
		pause := heartbeatEvery
		if trouble := p.listen(ctx); trouble && p.hurries.Load() {
			pause = hurryEvery
			p.look()
		}
		select {
		case <-time.After(pause):
		case <-p.ways.changed:
		case <-ctx.Done():
		}
	}
}

// beat sends one heartbeat. It ignores an error, as the next heartbeat follows soon.
func (p *heartbeats) beat(ctx context.Context, last bool) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	var load Load
	if p.load != nil {
		load = p.load()
	}
	p.mu.Lock()
	p.count++
	b := Heartbeat{
		Member: p.self, Count: p.count, Left: last, Load: load, All: p.all,
		Refused: p.ways.list(Refused), Unreached: p.ways.list(Unreached), Late: p.ways.list(Late),
		Unloads: p.unloads != nil && p.unloads(), Unloaded: p.done, Plan: p.plan.Load(),
	}
	p.mu.Unlock()
	_ = p.store.Heartbeat(ctx, b)
}

// listen reads others' heartbeats, and reports whether some member does not reach a living one.
func (p *heartbeats) listen(ctx context.Context) (trouble bool) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	beats, err := p.store.Heartbeats(ctx)
	if err != nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.at.IsZero() {
		p.clock += min(now.Sub(p.at), longestDeaf)
	}
	p.at = now
	for i := range beats {
		p.hear(&beats[i])
	}
	p.measure()
	for id, h := range p.heard {
		if p.clock-h.last > forgetHeartbeatAt {
			delete(p.heard, id)
		}
		trouble = trouble || p.isAlive(h) && p.isLost(id)
	}
	p.ways.keep(p.heard)
	return trouble
}

// hear notes b.
func (p *heartbeats) hear(b *Heartbeat) {
	h := p.heard[b.ID]
	if h == nil {
		h = &heard{steady: p.clock, last: p.clock, idle: p.clock}
		p.heard[b.ID] = h
	} else if b.Count <= h.beat.Count {
		return
	}
	if p.clock-h.last > gapAfter {
		h.steady = p.clock
	}
	if h.beat.Count > 0 {
		h.beats++
	}
	h.beat, h.last = *b, p.clock
	h.lost = p.since(h.lost, b.lost())
	h.late = p.since(h.late, slices.Concat(b.lost(), b.Late))
}

// since returns since when each of ids has been reported: the time in before, or now.
func (p *heartbeats) since(before map[ID]time.Duration, ids []ID) map[ID]time.Duration {
	all := make(map[ID]time.Duration)
	for _, id := range ids {
		all[id] = p.clock
		if since, ok := before[id]; ok {
			all[id] = since
		}
	}
	return all
}

// isLost reports whether some member does not reach id.
func (p *heartbeats) isLost(id ID) bool {
	for _, h := range p.heard {
		if _, lost := h.lost[id]; lost && p.isAlive(h) {
			return true
		}
	}
	how := p.ways.to(id)
	return how == Refused || how == Unreached
}

// silent reports whether m's last heartbeat was so long ago that m is taken for dead. That is sooner if keys wait for
// another owner and m's address refuses connections. Time in which this member did not listen does not count.
func (p *heartbeats) silent(m Member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() {
		return false
	}
	h := p.heard[m.ID]
	if h == nil { // its silence begins now, as the view may have listed it only a moment ago
		h = &heard{beat: Heartbeat{Member: m}, last: p.clock, steady: p.clock, idle: p.clock}
		p.heard[m.ID] = h
	}
	return p.isSilent(h)
}

func (p *heartbeats) isSilent(h *heard) bool {
	id, limit := h.beat.ID, silentFor
	switch refused := p.ways.to(id) == Refused; {
	case !p.hurries.Load():
	case refused && p.isRefusedByOthers(id), p.isReplaced(h):
		limit = goneFor
	case refused:
		limit = refusedFor
	}
	return h.beat.Left || p.clock-h.last > limit
}

// isRefusedByOthers reports whether another member's connections to id are refused.
func (p *heartbeats) isRefusedByOthers(id ID) bool {
	for other, h := range p.heard {
		if other != p.self.ID && other != id && p.isAlive(h) && slices.Contains(h.beat.Refused, id) {
			return true
		}
	}
	return false
}

// isReplaced reports whether a member that began its heartbeats after h's last one has h's address. Then h's process is
// gone, as two processes can't listen at one address.
func (p *heartbeats) isReplaced(h *heard) bool {
	if h.beat.Address == "" {
		return false
	}
	for _, other := range p.heard {
		if other.beat.Address == h.beat.Address && other.beat.ID != h.beat.ID && other.steady >= h.last && p.isAlive(other) {
			return true
		}
	}
	return false
}

// rivalHeartbeats is how many heartbeats of another member with this one's address prove that both have it at the same
// time, and not one after the other.
const rivalHeartbeats = 3

// rival returns a living member with this one's address, the zero Member if there is none, and whether it began its
// heartbeats before this one.
func (p *heartbeats) rival() (rival Member, earlier bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, h := range p.heard {
		if p.self.Address != "" && h.beat.Address == p.self.Address && id != p.self.ID && h.beats >= rivalHeartbeats && p.isAlive(h) {
			return h.beat.Member, h.beat.Count > p.count || h.beat.Count == p.count && id < p.self.ID
		}
	}
	return Member{}, false
}

func (p *heartbeats) isAlive(h *heard) bool {
	return !h.beat.Left && h.beat.Count > 0 && p.clock-h.last < silentFor
}

// candidates returns the members that are alive and not in v.
func (p *heartbeats) candidates(v *View) (all []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, h := range p.heard {
		if p.isAlive(h) && !v.Lists(id) {
			all = append(all, h.beat.Member)
		}
	}
	return all
}

// way is the direction from one member to another.
type way struct{ From, To Member }

// lost returns the ways between members on which the first has not reached the second for at least the time least,
// although both sent heartbeats all that time.
func (p *heartbeats) lost(members []Member, least time.Duration) (ways []way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, from := range members {
		f := p.heard[from.ID]
		if f == nil {
			continue
		}
		for _, to := range members {
			t := p.heard[to.ID]
			since, lost := f.lost[to.ID]
			if lost && t != nil && min(f.last, t.last)-max(since, f.steady, t.steady) >= least {
				ways = append(ways, way{from, to})
			}
		}
	}
	return ways
}

// isWhole reports whether all of members are alive, and reach each other.
func (p *heartbeats) isWhole(members []Member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(members, func(m Member) bool {
		h := p.heard[m.ID]
		return h == nil || !p.isAlive(h) || p.isLost(m.ID)
	})
}
