package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/seen"
)

// knowledge is an owner's set of the slot's keys that may have counted units. It is complete if no other key of the slot
// has any. Keys that were counted before the term are in it only after the previous owner has handed its set over, or
// this one has looked through all counted keys.
type knowledge struct {
	keys     seen.Set
	complete atomic.Bool
}

// Note adds key before units of it are counted, which affect decisions until the time until. ErrOut means that the term
// has ended, and that the slot's next owner may not know of key.
func (t *Term) Note(key seen.Hash, until time.Time) error {
	t.known.keys.Add(key, until)
	if t.Ended() { // the set may have been handed over without key
		return ErrOut
	}
	return nil
}

// IsNew reports whether key certainly has no counted units. Units of key affect decisions for life after they are
// counted.
func (t *Term) IsNew(key seen.Hash, life time.Duration) bool {
	return t.Owned() && (t.known.complete.Load() || time.Since(t.began) > life) && !t.known.keys.Has(key)
}

// Handed is the key set of a slot's owner at the end of its term.
type Handed struct {
	Slot   int
	Layers []seen.Layer
}

// Functions by which a member hands its key sets over, and completes those of its slots.
type (
	// HandOver sends a member the key sets of slots that this instance owned up to the view before view.
	HandOver func(ctx context.Context, to Member, view int64, slots []Handed) error
	// LookThrough calls found for every key with counted units, which affect decisions until the time until. slot is the
	// key's, by SlotOf. An error that wraps ErrTooManyKeys means that another attempt would fail, too.
	LookThrough func(ctx context.Context, found func(slot int, key seen.Hash, until time.Time)) error
)

// ErrTooManyKeys means that there are more counted keys than LookThrough reads.
var ErrTooManyKeys = errors.New("there are too many keys to look through")

// inbox holds key sets that arrive before their term begins.
type inbox struct {
	mu      sync.Mutex
	view    int64
	waiting map[int][]seen.Layer
}

// Take accepts the key sets of the members that owned the slots up to the view before view. It uses a set only for a
// term that begins with view: before another term, another member may have owned the slot in between.
func (c *Cluster) Take(view int64, handed []Handed) {
	c.inbox.mu.Lock()
	defer c.inbox.mu.Unlock()
	r := c.routes.Load()
	for _, h := range handed {
		if h.Slot < 0 || h.Slot >= Slots {
			continue
		}
		if t := r.terms[h.Slot]; t != nil && t.Since == view {
			t.absorb(h.Layers)
			continue
		}
		if view > c.inbox.view && view <= r.view.Number+1 {
			c.inbox.view, c.inbox.waiting = view, make(map[int][]seen.Layer)
		}
		if view == c.inbox.view {
			c.inbox.waiting[h.Slot] = h.Layers
		}
	}
}

// deliver gives the sets that have arrived for view to the terms that begin with it. These terms must be published
// before, so that Take finds them for the sets that arrive later.
func (b *inbox) deliver(view int64, begun []*Term) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.view != view {
		return
	}
	for _, t := range begun {
		if layers, ok := b.waiting[t.Slot]; ok {
			t.absorb(layers)
		}
	}
	clear(b.waiting)
}

// absorb adds the previous owner's key set to t's, which is complete then.
func (t *Term) absorb(layers []seen.Layer) {
	if !t.known.complete.Load() && t.known.keys.Absorb(layers) {
		t.known.complete.Store(true)
	}
}

// isComplete reports whether t's owner knows all keys of the slot.
func (t *Term) isComplete() bool { return t.known.complete.Load() }

// Bounds of handing over and looking through.
const (
	handOverWithin = 2 * time.Second
	handedAtOnce   = 256             // most slots in one message
	wordsAtOnce    = 1 << 17         // a message with sets of this many words, which are a mebibyte, gets no further slot
	lookAfter      = 2 * time.Second // time after a view is in force for others to hand their sets over
	firstLookRetry = 30 * time.Second
	lastLookRetry  = time.Hour
)

// handOver sends this member's key sets of ended to the slots' owners in view.
func (s *membership) handOver(ctx context.Context, ended []*Term, view *View) {
	if s.cluster.opts.HandOver == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	owners, to := view.owners(), make(map[int16][]Handed)
	for _, t := range ended {
		if t.Owned() && t.isComplete() && owners[t.Slot] >= 0 {
			next := owners[t.Slot]
			to[next] = append(to[next], Handed{t.Slot, t.known.keys.Layers()})
		}
	}
	var all sync.WaitGroup
	for owner, handed := range to {
		member := view.Members[owner]
		if member.ID == s.self.ID || member.Address == "" {
			continue
		}
		all.Go(func() {
			for len(handed) > 0 {
				n := fitting(handed)
				if err := s.cluster.opts.HandOver(ctx, member, view.Number, handed[:n]); err != nil {
					s.cluster.handedInVain.Add(int64(len(handed)))
					s.cluster.opts.Logger.Info("a slot's next owner has to read its counts", "member", member.ID,
						"slots", len(handed), "view", view.Number, "error", err)
					return
				}
				s.cluster.handedOver.Add(int64(n))
				handed = handed[n:]
			}
		})
	}
	all.Wait()
}

// fitting returns how many of handed, from the first on, fit into one message.
func fitting(handed []Handed) (n int) {
	words := 0
	for n < min(len(handed), handedAtOnce) && words < wordsAtOnce {
		for _, l := range handed[n].Layers {
			words += len(l.Bits)
		}
		n++
	}
	return n
}

// handOverMoved hands over the key sets of the terms that ended with the view, once the view is confirmed.
func (s *membership) handOverMoved(ctx context.Context) {
	moved, view := s.moved, s.view
	s.moved = nil
	if len(moved) > 0 && s.confirmed == view.Number {
		s.handing.Go(func() { s.handOver(context.WithoutCancel(ctx), moved, &view) })
	}
}

// handOverLast hands over the key sets of the terms that ended when this member left. It sends them to the owners by the
// next view as it will be if no other member joins or leaves; if the view is another one, they are dropped.
func (s *membership) handOverLast(ctx context.Context, ended []*Term) {
	stay := slices.DeleteFunc(slices.Clone(s.view.Members), func(m Member) bool { return m.ID == s.self.ID })
	own := ownership{mode: modeFor(stay)}
	if s.view.Mode == Sole && len(stay) > 1 && own.mode == Owners {
		own = ownership{mode: Sole, sole: youngest(reachable(stay), &s.view)}
	}
	next := s.view.next(stay, own, nil)
	s.handOver(ctx, ended, &next)
	s.handing.Wait()
}

// startLookThrough starts lookThrough for the terms begun.
func (s *membership) startLookThrough(begun []*Term) {
	if len(begun) > 0 && s.cluster.opts.LookThrough != nil {
		alone := len(s.view.Members) == 1
		s.handing.Go(func() { s.lookThrough(s.lasting, begun, alone) })
	}
}

// lookThrough completes the key sets of begun that were not handed over. It tries again after failures.
func (s *membership) lookThrough(ctx context.Context, begun []*Term, alone bool) {
	wait, retry := lookAfter, firstLookRetry
	if alone {
		wait = 0 // no other member can hand anything over
	}
	for again := true; again; wait, retry = retry, min(2*retry, lastLookRetry) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		again = s.lookOnce(ctx, begun)
	}
}

// lookOnce makes one attempt of lookThrough. It reports whether another one is worthwhile.
func (s *membership) lookOnce(ctx context.Context, begun []*Term) (again bool) {
	wanted := make(map[int]*Term)
	for _, t := range begun {
		if !t.Ended() && !t.isComplete() {
			wanted[t.Slot] = t
		}
	}
	if len(wanted) == 0 {
		return false
	}
	began := time.Now()
	err := s.cluster.opts.LookThrough(ctx, func(slot int, key seen.Hash, until time.Time) {
		if t := wanted[slot]; t != nil {
			t.known.keys.Add(key, until)
		}
	})
	if err != nil {
		s.cluster.opts.Logger.Info("new keys are read until all are known", "slots", len(wanted), "error", err)
		return !errors.Is(err, ErrTooManyKeys)
	}
	for _, t := range wanted {
		t.known.complete.Store(true)
	}
	s.cluster.opts.Logger.Info("all keys are known", "slots", len(wanted), "took", time.Since(began))
	return false
}

// SlotOf returns the slot of keys that begin with these eight bytes.
func SlotOf(prefix uint64) int { return int(prefix % Slots) }
