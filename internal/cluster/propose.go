package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	confirmWithin = 2 * time.Second        // after which a member that has not confirmed a view is set out
	gatherFor     = 200 * time.Millisecond // so that one view takes in several members that join
	rankWait      = 100 * time.Millisecond // for each member that should propose before this one
	joinWait      = 500 * time.Millisecond // so that a member of the view proposes before one that joins
)

// propose proposes the next view if there is a reason for one and it is this member's turn.
func (s *membership) propose(ctx context.Context) error {
	if s.view.Number == 0 {
		return s.offer(ctx, (&View{}).next([]Member{s.self}, ownership{mode: Owners}, nil))
	}
	if s.view.wasCut() && !s.heartbeats.isWhole(s.view.Members) {
		s.whole = time.Now()
	}
	if !s.mayChange() {
		s.heartbeats.plan.Store(nil)
		s.wanted = time.Time{}
		return nil
	}
	if err := s.setOutSilent(ctx); err != nil {
		return err
	}
	heard := slices.DeleteFunc(slices.Clone(s.view.Members), s.heartbeats.silent)
	if !s.isTurn(heard, len(heard) < len(s.view.Members)) {
		return nil // the rows of members are read only by the member whose turn it is
	}
	known, err := s.standings(ctx, s.view.involved())
	if err != nil {
		return err
	}
	if known[s.self.ID].out {
		return ErrOut
	}
	stay := slices.DeleteFunc(slices.Clone(s.view.Members), func(m Member) bool { return known[m.ID].out })
	join, err := s.joining(ctx)
	if err != nil {
		return err
	}
	members := slices.Concat(stay, join)
	dies, own := len(stay) < len(s.view.Members), s.nextOwnership(members)
	if !dies && (!s.installed || len(join) == 0 && own == s.view.ownership()) {
		s.heartbeats.plan.Store(nil)
		s.wanted = time.Time{}
		return nil
	}
	if !s.isTurn(stay, dies) {
		return nil
	}
	if !s.isUnloaded(members, own) {
		if !dies {
			return nil
		}
		if len(stay) > 0 { // change no more than the death forces
			members, own = stay, s.forced(stay)
		}
	}
	next := s.view.next(members, own, known)
	next.Cuts = s.cuts(&next)
	if next.All != "" && next.All != s.view.All {
		s.cluster.opts.Logger.Warn("all instances own keys from now on, not one alone", "reason", next.All, "sole_owner", s.view.Sole)
	}
	return s.offer(ctx, next)
}

// forced returns the ownership of a view of the members that stay after a death. If possible, none of their slots moves.
func (s *membership) forced(stay []Member) ownership {
	canStay := s.view.Mode == Owners || slices.ContainsFunc(stay, func(m Member) bool { return m.ID == s.view.Sole })
	if next := s.nextOwnership(stay); !s.view.hasOwners() || next.mode == Shared || !canStay {
		return next
	}
	return s.view.ownership()
}

// mayChange reports whether there may be a reason for another view. It does not read the store.
func (s *membership) mayChange() bool {
	return !s.installed || !s.view.Lists(s.self.ID) || len(s.heartbeats.candidates(&s.view)) > 0 ||
		slices.ContainsFunc(s.view.Members, s.heartbeats.silent) || s.nextOwnership(s.view.Members) != s.view.ownership()
}

// joining returns the members to add to the view. While the view is not in force, it returns none unless all members of
// the view are silent, so that only smaller views follow one that can't come into force.
func (s *membership) joining(ctx context.Context) (join []Member, err error) {
	if !s.installed && slices.ContainsFunc(s.view.Members, func(m Member) bool { return !s.heartbeats.silent(m) }) {
		return nil, nil
	}
	candidates := s.heartbeats.candidates(&s.view)
	if !s.view.Lists(s.self.ID) && !slices.ContainsFunc(candidates, func(m Member) bool { return m.ID == s.self.ID }) {
		candidates = append(candidates, s.self)
	}
	known, err := s.standings(ctx, idsOf(candidates))
	if err != nil {
		return nil, err
	}
	for _, m := range candidates {
		switch {
		case !known[m.ID].out:
			join = append(join, m)
		case m.ID == s.self.ID:
			return nil, ErrOut
		}
	}
	return join, nil
}

// isTurn reports whether this member should propose now. After a death the first of stay proposes at once, and each
// later one only if those before it have not. Without a death, all wait for gatherFor before.
func (s *membership) isTurn(stay []Member, dies bool) bool {
	now := time.Now()
	if s.wanted.IsZero() {
		s.wanted = now
	}
	wait := time.Duration(0)
	if !dies {
		wait = gatherFor
	}
	rank := slices.IndexFunc(stay, func(m Member) bool { return m.ID == s.self.ID })
	switch {
	case rank > 0:
		wait += time.Duration(rank)*rankWait + rand.N(rankWait/2)
	case rank < 0 && len(stay) > 0:
		wait += joinWait + rand.N(joinWait)
	case rank < 0:
		wait += rand.N(rankWait)
	}
	return now.Sub(s.wanted) >= wait
}

// offer replaces the known view by v, and follows v if that succeeds.
func (s *membership) offer(ctx context.Context, v View) error {
	at, err := s.store.Set(ctx, viewCell, s.at, encode(v))
	switch {
	case errors.Is(err, ErrConflict):
		s.doubt = true
		return nil
	case err != nil: // v may have become the view, or become it later
		s.doubt = true
		return err
	}
	s.at = at
	s.cluster.look()
	return s.learn(v)
}

// setOutSilent sets out the members of the view that are silent. That is safe whether they are dead or not.
func (s *membership) setOutSilent(ctx context.Context) error {
	silent := slices.DeleteFunc(slices.Clone(s.view.Members), func(m Member) bool {
		return m.ID == s.self.ID || !s.heartbeats.silent(m)
	})
	known, err := s.standings(ctx, idsOf(silent))
	if err != nil {
		return err
	}
	for _, m := range silent {
		if known[m.ID].out {
			continue
		}
		s.cluster.opts.Logger.Warn("a member gives no sign of life: it is set out", "member", m.ID, "address", m.Address)
		if err := setOut(ctx, s.store, m.ID); err != nil {
			return err
		}
	}
	return nil
}

// setOutLate sets out members that have not confirmed the view in time.
func (s *membership) setOutLate(ctx context.Context, known map[ID]standing) error {
	if time.Since(s.learned) < confirmWithin {
		return nil
	}
	for _, id := range s.view.Must {
		if st := known[id]; id != s.self.ID && !st.out && st.confirmed < s.view.Number {
			s.cluster.opts.Logger.Warn("a member does not confirm the view: it is set out", "member", id, "view", s.view.Number)
			if err := setOut(ctx, s.store, id); err != nil {
				return err
			}
		}
	}
	return nil
}
