package limiter

import (
	"context"
	"errors"
	"slices"
	"time"
)

// When a window ends, so do the leases in it, and the next request of each of their keys
// would ask the store, all within the same seconds. So under LeasesEarly what is left of
// a lease late in a window is counted in the next one as well, in the background, and is
// handed out there as if the lease went on.
//
// Nothing need be read for that. What is left of a lease has been found to fit beside all
// that counts, and from now on is not handed out in its own window: it is only counted
// there. As later windows count whole, and earlier ones by a share under a sliding tail and
// not at all under a fixed window, any use of it in the next window leaves less to find
// than if it had been handed out where it was. Who decides in the next window by any clock
// within the tolerance begins after it was stored there, as that is waited for no longer
// than until a slack before, and so counts it.
//
// Until the next window is over it is counted twice, which may deny others by as much: no
// more than is counted ahead with a key's first unit, and less as the window before fades.
const (
	// carryPart is the part of a window, at its end, over which keys are spread in so many
	// steps.
	carryPart, carrySteps = 8, 64
	// carryRest is the part of what is left that stays for the rest of a window.
	carryRest = 4
	// carryWriters is how many writes are made at the same time.
	carryWriters = 64
)

// carries reports whether what is left of a lease under p may be counted in the next
// window: there is one sum in each, which counts whole there, and is safe to store again.
func (p *plan) carries() bool {
	if !p.Leases.early() || !p.tally || len(p.rules) != 1 {
		return false
	}
	return p.rules[0].endsWhole()
}

// of returns the lease of key at now, which goes on in the next window with what is
// counted there; nil for none.
func (s *leaseShard) of(key Key, now Instant) *lease {
	held := s.live[key]
	if held != nil && len(held.next) > 0 && held.ends <= now {
		held = held.carried()
		s.live[key] = held
	}
	return held
}

// carried returns h as it is in the next window. What it tells of others gets no younger,
// and that the key is asked for is known.
func (h *lease) carried() *lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	units := h.next[0].Units
	return &lease{
		target: h.target, epoch: h.epoch, since: h.ends, made: h.made, until: h.until,
		back: h.ends.Add(maxEarlyIdle), ends: h.target.plan.windowsEnd(h.ends), fits: true, size: units,
		state: h.state.counted(), left: units, taken: leaseAfter,
	}
}

// carry counts in the next window what goes on there of leases whose time has come.
func (l *leases) carry(ctx context.Context, due []*lease) {
	shareOut(carryWriters, slices.Values(due), func(held *lease) { l.carryOne(ctx, held) })
}

// isDue reports whether h is to go on in the next window, and now is the time to count
// that: within a part of its window at the end. It is worth a write if, by what was asked
// for so far, a unit will be before what h tells is too old.
func (h *lease) isDue(now Instant, slack time.Duration, part int64) bool {
	if h.until <= h.ends || !h.fits || h.high || len(h.next) > 0 || !h.target.plan.carries() {
		return false
	}
	last := h.ends.Add(-slack)
	step := h.target.plan.rules[0].Window / time.Duration(part*carrySteps)
	from := last.Add(-step * time.Duration(h.target.key.Prefix()>>32%carrySteps))
	if now < from {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	since, lasts := int64(now-h.since), int64(h.until-h.ends)
	return h.left > 0 && h.size-h.left >= max(1, (since+lasts-1)/lasts)
}

// carryOne counts in the next window what goes on there of held.
func (l *leases) carryOne(ctx context.Context, held *lease) {
	t := &held.target
	if !l.inTime(held) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.opts.StoreTimeout)
	defer cancel()
	units := held.reserve(l.bounds(t.plan).first(t.plan))
	if units == 0 {
		return
	}
	next := t.plan.appendCounts(nil, held.epoch, held.ends, units)
	w := Write{Key: t.key, Level: t.plan.Consistency.Write, Add: next, Tally: true, Span: t.plan.span}
	err := l.store.Write(ctx, &w)
	if err == nil && l.inTime(held) && l.shard(t.key).attach(held, next) {
		return
	}
	if !l.shard(t.key).release(held, units) && l.opts.now() < held.ends {
		l.give(t, held.counts(units))
	}
	if !errors.Is(err, ErrNotStored) {
		l.give(t, next)
	}
}

// inTime reports whether the window that held is of goes on by every clock within the
// tolerance, of which this one is.
func (l *leases) inTime(held *lease) bool {
	now, err := l.opts.instant()
	return err == nil && now < held.ends.Add(-l.opts.slack())
}

// reserve takes what goes on in the next window out of what is left.
func (h *lease) reserve(most int64) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	units := min(most, h.left-h.left/carryRest)
	h.left -= units
	return units
}

// release gives what was reserved back to what is left of held, unless that has ended.
func (s *leaseShard) release(held *lease, units int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[held.target.key] != held {
		return false
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	held.left += units
	return true
}

// attach notes what of held is counted in the next window, unless it has ended.
func (s *leaseShard) attach(held *lease, next []Count) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live[held.target.key] != held {
		return false
	}
	held.next = next
	return true
}
