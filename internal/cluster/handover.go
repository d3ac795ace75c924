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

// knowledge is what the owner of a slice knows of its keys: those that something may be counted for.
// It is complete if there are no others. What was counted before the tenure is in it only if the owner
// before handed it over, or if all that is counted was looked through.
type knowledge struct {
	keys     seen.Set
	complete atomic.Bool
}

// Note says that something is about to be counted for key, and matters until then. ErrOut says that
// the tenure is over, and that whoever owns the slice next may not know of it.
func (t *Tenure) Note(key seen.Hash, until time.Time) error {
	t.known.keys.Add(key, until)
	if t.Ended() { // the keys may have been handed over without it
		return ErrOut
	}
	return nil
}

// IsNew reports whether nothing is counted for key, of which nothing matters that was counted longer ago than life.
func (t *Tenure) IsNew(key seen.Hash, life time.Duration) bool {
	return t.Owned() && (t.known.complete.Load() || time.Since(t.began) > life) && !t.known.keys.Has(key)
}

// Handed is what the owner of a slice knew of it in the end.
type Handed struct {
	Slice  int
	Layers []seen.Layer
}

// How a member learns what it does not know of slices that it owns, and tells what it knew.
type (
	// HandOver tells to what this instance knew of slices that it owned up to the view before that one.
	HandOver func(ctx context.Context, to Member, view int64, slices []Handed) error
	// LookThrough tells found every key that something is counted for, in the slice that SliceOf says. An
	// error that wraps ErrTooManyKeys says that it is not worth another try.
	LookThrough func(ctx context.Context, found func(slice int, key seen.Hash, until time.Time)) error
)

// ErrTooManyKeys is more than are looked through.
var ErrTooManyKeys = errors.New("there are too many keys to look through")

// inbox holds what is handed over before the tenure begins that it is for.
type inbox struct {
	mu      sync.Mutex
	view    int64
	waiting map[int][]seen.Layer
}

// Take takes over what the owners of slices up to the view before that one knew of them. What is not for
// a tenure that begins with the view is dropped: somebody else may have owned the slice in between.
func (c *Cluster) Take(view int64, handed []Handed) {
	c.inbox.mu.Lock()
	defer c.inbox.mu.Unlock()
	r := c.routes.Load()
	for _, h := range handed {
		if h.Slice < 0 || h.Slice >= Slices {
			continue
		}
		if t := r.tenures[h.Slice]; t != nil && t.Since == view {
			t.absorb(h.Layers)
			continue
		}
		if view > c.inbox.view && view <= r.view.Number+1 {
			c.inbox.view, c.inbox.waiting = view, make(map[int][]seen.Layer)
		}
		if view == c.inbox.view {
			c.inbox.waiting[h.Slice] = h.Layers
		}
	}
}

// empty gives what was handed over for the view to tenures that begin with it, which are published.
func (b *inbox) empty(view int64, begun []*Tenure) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.view != view {
		return
	}
	for _, t := range begun {
		if layers, ok := b.waiting[t.Slice]; ok {
			t.absorb(layers)
		}
	}
	clear(b.waiting)
}

// absorb makes t's knowledge complete by that of the owner before.
func (t *Tenure) absorb(layers []seen.Layer) {
	if !t.known.complete.Load() && t.known.keys.Absorb(layers) {
		t.known.complete.Store(true)
	}
}

// isComplete reports whether t's owner knows all keys of the slice.
func (t *Tenure) isComplete() bool { return t.known.complete.Load() }

// Bounds of what is handed over and looked through.
const (
	handOverWithin = 2 * time.Second
	handedAtOnce   = 256             // slices of one message, or
	wordsAtOnce    = 1 << 17         // of their sets: a mebibyte
	lookAfter      = 2 * time.Second // after a view is in force, for others to hand over what they know
	firstLookRetry = 30 * time.Second
	lastLookRetry  = time.Hour
)

// handOver tells those that own the slices of ended in view what this member knew of them.
func (s *seat) handOver(ctx context.Context, ended []*Tenure, view *View) {
	if s.cluster.opts.HandOver == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverWithin)
	defer cancel()
	owners, to := view.owners(), make(map[int16][]Handed)
	for _, t := range ended {
		if t.Owned() && t.isComplete() && owners[t.Slice] >= 0 {
			of := owners[t.Slice]
			to[of] = append(to[of], Handed{t.Slice, t.known.keys.Layers()})
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
					s.cluster.opts.Logger.Info("a slice's next owner has to find out what is counted", "member", member.ID,
						"slices", len(handed), "view", view.Number, "error", err)
					return
				}
				s.cluster.handedOver.Add(int64(n))
				handed = handed[n:]
			}
		})
	}
	all.Wait()
}

// together returns how many of handed, from the first on, go by one message.
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

// handOverMoved hands over what ended with the view that is confirmed now.
func (s *seat) handOverMoved(ctx context.Context) {
	moved, view := s.moved, s.view
	s.moved = nil
	if len(moved) > 0 && s.confirmed == view.Number {
		s.handing.Go(func() { s.handOver(context.WithoutCancel(ctx), moved, &view) })
	}
}

// handOverLast hands over what this member owned when it left. It goes by the next view as it will be if
// nobody else comes or goes; in any other one it is dropped.
func (s *seat) handOverLast(ctx context.Context, ended []*Tenure) {
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

// findOut has the keys of begun looked through that nobody hands over.
func (s *seat) findOut(ctx context.Context, begun []*Tenure) {
	if len(begun) > 0 && s.cluster.opts.LookThrough != nil {
		alone := len(s.view.Members) == 1
		s.handing.Go(func() { s.lookThrough(s.lasting, begun, alone) })
	}
}

// lookThrough makes the knowledge of those of begun complete for which nobody handed over any, and tries
// again where that fails.
func (s *seat) lookThrough(ctx context.Context, begun []*Tenure, alone bool) {
	wait, retry := lookAfter, firstLookRetry
	if alone {
		wait = 0 // nobody is there to hand over anything
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

// lookOnce reports whether it is worth another try.
func (s *seat) lookOnce(ctx context.Context, begun []*Tenure) (again bool) {
	wanted := make(map[int]*Tenure)
	for _, t := range begun {
		if !t.Ended() && !t.isComplete() {
			wanted[t.Slice] = t
		}
	}
	if len(wanted) == 0 {
		return false
	}
	began := time.Now()
	err := s.cluster.opts.LookThrough(ctx, func(slice int, key seen.Hash, until time.Time) {
		if t := wanted[slice]; t != nil {
			t.known.keys.Add(key, until)
		}
	})
	if err != nil {
		s.cluster.opts.Logger.Info("new keys are read until all are known", "slices", len(wanted), "error", err)
		return !errors.Is(err, ErrTooManyKeys)
	}
	for _, t := range wanted {
		t.known.complete.Store(true)
	}
	s.cluster.opts.Logger.Info("all keys are known", "slices", len(wanted), "took", time.Since(began))
	return false
}

// SliceOf returns the slice of keys that begin with these eight bytes.
func SliceOf(prefix uint64) int { return int(prefix % Slices) }
