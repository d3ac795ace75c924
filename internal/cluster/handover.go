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

// knowledge is an owner's set of a slot's counted keys: those for which something may be counted. It is complete if
// there are no others. It includes keys from before the term only if the previous owner handed its set over, or after
// a look through all counted keys.
type knowledge struct {
	keys     seen.Set
	complete atomic.Bool
}

// Note adds key, for which something is about to be counted that matters until then. ErrOut means that the term has
// ended, and that the next owner of the slot may not know of key.
func (t *Term) Note(key seen.Hash, until time.Time) error {
	t.known.keys.Add(key, until)
	if t.Ended() { // the keys may have been handed over without it
		return ErrOut
	}
	return nil
}

// IsNew reports whether nothing is counted for key. Units of key matter for life.
func (t *Term) IsNew(key seen.Hash, life time.Duration) bool {
	return t.Owned() && (t.known.complete.Load() || time.Since(t.began) > life) && !t.known.keys.Has(key)
}

// Handed is the key set of a slot's owner at the end of its term.
type Handed struct {
	Slot   int
	Layers []seen.Layer
}

// The ways in which a member hands its key sets over, and completes those of its slots.
type (
	// HandOver sends this instance's key sets, of slots that it owned up to the view before view, to a member.
	HandOver func(ctx context.Context, to Member, view int64, slots []Handed) error
	// LookThrough calls found with every key for which something is counted, and its slot by SlotOf. An error that
	// wraps ErrTooManyKeys means that another attempt would fail, too.
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

// Take takes over the key sets of the owners up to the view before view. It drops sets that are not for a term that
// begins with view, as another member may have owned the slot in between.
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

// empty gives the sets handed over for the view to the terms that begin with it, which must be published.
func (b *inbox) empty(view int64, begun []*Term) {
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

// absorb completes t's key set by that of the previous owner.
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
	handedAtOnce   = 256             // slots of one message, or
	wordsAtOnce    = 1 << 17         // of their sets: a mebibyte
	lookAfter      = 2 * time.Second // after a view is in force, for others to hand their sets over
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
			of := owners[t.Slot]
			to[of] = append(to[of], Handed{t.Slot, t.known.keys.Layers()})
		}
	}
	var all sync.WaitGroup
	for of, handed := range to {
		member := view.Members[of]
		if member.ID == s.self.ID || member.Address == "" {
			continue
		}
		all.Go(func() {
			for len(handed) > 0 {
				n := together(handed)
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

// together returns how many of handed, from the first on, fit into one message.
func together(handed []Handed) (n int) {
	words := 0
	for n < min(len(handed), handedAtOnce) && words < wordsAtOnce {
		for _, l := range handed[n].Layers {
			words += len(l.Bits)
		}
		n++
	}
	return n
}

// handOverMoved hands over the terms that ended with the view, once it is confirmed.
func (s *membership) handOverMoved(ctx context.Context) {
	moved, view := s.moved, s.view
	s.moved = nil
	if len(moved) > 0 && s.confirmed == view.Number {
		s.handing.Go(func() { s.handOver(context.WithoutCancel(ctx), moved, &view) })
	}
}

// handOverLast hands over the slots that this member owned when it left. It computes the next view as it will be if no
// other member joins or leaves; in any other view the sets are dropped.
func (s *membership) handOverLast(ctx context.Context, ended []*Term) {
	stay := slices.DeleteFunc(slices.Clone(s.view.Members), func(m Member) bool { return m.ID == s.self.ID })
	own := ownership{mode: modeFor(stay)}
	if s.view.Mode == Sole && len(stay) > 1 && own.mode == Owners {
		can := slices.DeleteFunc(slices.Clone(stay), func(m Member) bool { return m.Address == "" })
		slices.SortFunc(can, byAge)
		own = ownership{mode: Sole, sole: youngest(can, &s.view)}
	}
	next := s.view.next(stay, own, nil)
	s.handOver(ctx, ended, &next)
	s.handing.Wait()
}

// findOut starts a look through the keys of begun that no member hands over.
func (s *membership) findOut(ctx context.Context, begun []*Term) {
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
