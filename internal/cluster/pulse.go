package cluster

import (
	"context"
	"maps"
	"sync"
	"time"
)

// pulse makes a member's beats, and listens to those of others.
type pulse struct {
	store   Store
	self    Member
	refused *refusals

	mu    sync.Mutex
	count int64
	heard map[ID]heard
	at    time.Time // when beats were read last; zero: never
}

// heard is what was heard of one member.
type heard struct {
	beat  Beat
	since time.Time // when its count was seen to change last
}

const (
	beatEvery    = 300 * time.Millisecond
	beatTimeout  = time.Second             // of one beat or one look at others'
	silentFor    = 2500 * time.Millisecond // after which a member is taken for dead
	refusedFor   = 900 * time.Millisecond  // the same for one that refuses connections
	forgetBeatAt = time.Minute             // of silence
)

// BeatTTL is for how long a store keeps a beat that is not renewed.
const BeatTTL = 10 * time.Second

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		p.beat(ctx, false)
		p.listen(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// beat gives one sign of life. Should it be lost, there is another one soon.
func (p *pulse) beat(ctx context.Context, last bool) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	p.mu.Lock()
	p.count++
	b := Beat{Member: p.self, Count: p.count, Left: last, Refused: p.refused.list()}
	p.mu.Unlock()
	_ = p.store.Beat(ctx, b)
}

// listen reads others' beats.
func (p *pulse) listen(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	beats, err := p.store.Beats(ctx)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = time.Now()
	for _, b := range beats {
		if h, ok := p.heard[b.ID]; !ok || b.Count > h.beat.Count {
			p.heard[b.ID] = heard{beat: b, since: p.at}
		}
	}
	for id, h := range p.heard {
		if p.at.Sub(h.since) > forgetBeatAt {
			delete(p.heard, id)
		}
	}
	p.refused.keep(p.heard)
}

// silent reports whether m has given no sign of life for so long that it is taken for dead.
// What is not heard because nobody listened says nothing.
func (p *pulse) silent(m Member) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() {
		return false
	}
	h, ok := p.heard[m.ID]
	if !ok { // it may have been listed a moment ago
		h = heard{beat: Beat{Member: m}, since: p.at}
		p.heard[m.ID] = h
	}
	limit := silentFor
	if p.refused.has(m.ID) {
		limit = refusedFor
	}
	return h.beat.Left || p.at.Sub(h.since) > limit
}

// candidates returns the members that are alive and not in v.
func (p *pulse) candidates(v *View) (all []Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, h := range p.heard {
		if h.beat.Count > 0 && !h.beat.Left && !v.Lists(id) && p.at.Sub(h.since) < silentFor {
			all = append(all, h.beat.Member)
		}
	}
	return all
}

// refusals are the members that refuse this instance's connections.
type refusals struct {
	mu  sync.Mutex
	ids map[ID]bool
}

// Refused notes that id refuses connections, or no longer does.
func (c *Cluster) Refused(id ID, refuses bool) {
	c.refused.mu.Lock()
	known := c.refused.ids[id]
	switch {
	case refuses == known:
	case refuses:
		if c.refused.ids == nil {
			c.refused.ids = make(map[ID]bool)
		}
		c.refused.ids[id] = true
	default:
		delete(c.refused.ids, id)
	}
	c.refused.mu.Unlock()
	if refuses && !known {
		c.look()
	}
}

func (r *refusals) has(id ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids[id]
}

// keep forgets all but those that were heard of: who is gone for good refuses for ever.
func (r *refusals) keep(known map[ID]heard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.ids, func(id ID, _ bool) bool { _, ok := known[id]; return !ok })
}

func (r *refusals) list() (ids []ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.ids {
		ids = append(ids, id)
	}
	return ids
}
