package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// membership is one membership of this instance, from joining until it is out. All fields but the fence belong to the
// goroutine that tends it.
type membership struct {
	cluster    *Cluster
	store      Store
	self       Member
	version    Version // of its own row
	fence      *Fence
	heartbeats *heartbeats

	view      View // the latest known view; zero: none
	at        Version
	learned   time.Time       // when view was learned
	confirmed int64           // the latest view that its row confirms
	installed bool            // view is in force
	cleared   map[ID]standing // members for which view need not wait any more
	terms     [Slots]*Term
	all       *Term // the term in mode Shared; nil: none

	lasting   context.Context // ends with the membership
	handing   sync.WaitGroup  // handing over and looking through
	unloading *unloading      // nil: no slot moves
	moved     []*Term         // terms that ended with view, to hand over once it is confirmed

	wanted time.Time // since when there is a reason for another view; zero: there is none
	whole  time.Time // since when all members reach each other, as far as this one knows
	since  time.Time // since when views have had owners, or have had none
	owned  time.Time // since when views have had the present mode
	doubt  bool      // it is not known whether a proposed view was set
	first  bool      // this is the process's first membership
	warned bool      // another member with this one's address has been logged
	unread time.Time // since when this member's own row can't be read or written, though the view can; zero: it can
}

const (
	pollEvery   = 20 * time.Millisecond  // while a view is not in force
	tendEvery   = 250 * time.Millisecond // while it is
	drainWithin = 500 * time.Millisecond // time for calls of slots that move to end
	flushWithin = time.Second            // time to write units that these calls admitted
	drainPoll   = 2 * time.Millisecond
	storeWithin = 2 * time.Second // time for one round of reads and writes
	leaveWithin = 2 * time.Second
	unreadFor   = 5 * time.Second // a membership ends if only its own row can't be read or written for this long
	rowsAtOnce  = 8
)

// errLost means that a membership can't go on, as its view or its row has been lost.
var errLost = errors.New("the view does not list this instance")

// Errors of this member's own row.
var (
	errOwnRow = errors.New("this instance's row")
	errUnread = errors.New("this instance's row can't be read or written, though others' can")
)

func newMembership(c *Cluster) *membership {
	s := &membership{cluster: c, store: c.store, self: Member{ID: NewID(), Address: c.opts.Address}, whole: time.Now()}
	s.fence = newFence(s.readOwnRow)
	s.heartbeats = &heartbeats{
		store: c.store, self: s.self, ways: &c.ways, look: c.look, heard: make(map[ID]*heard),
		all: c.opts.AllOwn, load: c.opts.Load, busyFor: c.busyFor, unloads: c.opts.MayUnload,
	}
	return s
}

// readOwnRow reports whether this member's row says that it is in.
func (s *membership) readOwnRow(ctx context.Context) (in bool, err error) {
	r, _, err := readRow(ctx, s.store, s.self.ID, false)
	if err == nil && r.State != stateIn {
		s.cluster.look()
	}
	return r.State == stateIn, err
}

// followUntil joins and follows the views, until ctx or the membership ends.
func (s *membership) followUntil(ctx context.Context) error {
	for ctx.Err() == nil || !s.mayLeave() {
		lasting, over := ctx, ctx.Done()
		if ctx.Err() != nil { // a member that unloads before it leaves follows views
			lasting, over = s.lasting, nil
		}
		limited, cancel := context.WithTimeout(lasting, storeWithin)
		err := s.followView(limited)
		cancel()
		if err == nil {
			err = s.checkRival()
		}
		if errors.Is(err, errLost) || errors.Is(err, ErrOut) || errors.Is(err, errAside) || errors.Is(err, ErrAddressTaken) {
			return err
		}
		if s.isUnread(err) {
			return errUnread
		}
		pause := tendEvery
		if err != nil || !s.installed || s.isIn() && !s.view.Lists(s.self.ID) || !s.wanted.IsZero() && s.heartbeats.plan.Load() == nil {
			pause = pollEvery
		}
		select {
		case <-s.cluster.kick:
		case <-time.After(pause):
		case <-over:
		}
	}
	return ctx.Err()
}

// checkRival returns ErrAddressTaken if an instance that began before this process has its address. It logs any other one
// with that address.
func (s *membership) checkRival() error {
	rival, earlier := s.heartbeats.rival()
	switch {
	case rival == Member{}:
	case s.first && earlier:
		return fmt.Errorf("%w: member %s is reached at %s", ErrAddressTaken, rival.ID, rival.Address)
	case !s.warned:
		s.warned = true
		s.cluster.opts.Logger.Warn("two living instances have one address: give each its own, no load balancer's",
			"address", rival.Address, "member", rival.ID, "self", s.self.ID)
	}
	return nil
}

// isUnread reports whether only this member's own row could not be read or written for unreadFor, by followView's
// results up to err. Then the nodes with the row are gone, and no other member can set this one out either. followView
// reads the view first, so an error of the own row means that the view could be read.
func (s *membership) isUnread(err error) bool {
	switch {
	case !errors.Is(err, errOwnRow):
		s.unread = time.Time{}
		return false
	case s.unread.IsZero():
		s.unread = time.Now()
	}
	return time.Since(s.unread) >= unreadFor
}

// followView reads the view once, and acts on it.
func (s *membership) followView(ctx context.Context) error {
	aside := s.cluster.standsAside()
	if aside && s.isIn() && !s.isAlone() {
		return errAside
	}
	v, at, err := readView(ctx, s.store, s.view.Number == 0 || s.doubt)
	if err != nil {
		return err
	}
	if v.Number < s.view.Number { // only some reads see a write in progress
		if v, at, err = readView(ctx, s.store, true); err != nil {
			return err
		}
	}
	if v.Number < s.view.Number {
		return fmt.Errorf("%w: view %d is gone", errLost, s.view.Number)
	}
	s.at, s.doubt = at, false
	if !aside && !s.isIn() {
		if err := s.insert(ctx); err != nil {
			return err
		}
	}
	if v.Number > s.view.Number {
		if err := s.learn(v); err != nil {
			return err
		}
	}
	if err := s.confirm(ctx); err != nil {
		return err
	}
	s.handOverMoved(ctx)
	if err := s.install(ctx); err != nil || !s.isIn() {
		return err
	}
	if err := s.checkOwnRow(ctx); err != nil {
		return err
	}
	s.unload(s.heartbeats.plans())
	return s.propose(ctx)
}

// isIn reports whether this member has a row: it is joining, or a member.
func (s *membership) isIn() bool { return s.version != (Version{}) }

// isAlone reports whether the view lists this member alone, so that no other one can take its keys.
func (s *membership) isAlone() bool { return len(s.view.Members) == 1 && s.view.Lists(s.self.ID) }

// checkOwnRow returns ErrOut if this member was set out. A next view might never say so: the member that set it out may
// have died, and others may hear this one again and see no reason for a view without it.
func (s *membership) checkOwnRow(ctx context.Context) error {
	if !s.view.Lists(s.self.ID) {
		return nil
	}
	began := time.Now()
	st, err := standingOf(ctx, s.store, s.self.ID)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errOwnRow, err)
	case st.out:
		return ErrOut
	}
	s.fence.noteIn(began)
	return nil
}

// insert creates this member's row, which no other member writes before it exists.
func (s *membership) insert(ctx context.Context) error {
	version, err := s.store.Set(ctx, rowCell(s.self.ID), Version{}, encode(row{State: stateIn, Address: s.self.Address}))
	if errors.Is(err, ErrConflict) { // an earlier attempt was stored
		var r row
		if r, version, err = readRow(ctx, s.store, s.self.ID, true); err == nil && r.State != stateIn {
			return ErrOut
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errOwnRow, err)
	}
	s.version = version
	s.heartbeats.joined.Store(true)
	return nil
}

// learn follows v from now on: slots that move take no further calls, and admit nothing once their calls are over or
// have had their time.
//
// A slot stays if this member has a term for it and owns it in v, and no other member can have owned it in between. That
// is certain if this member has confirmed the view right before v or, as the sole owner in v, any view since it became
// the sole owner; and if the views before and after both have owners, or both have none.
func (s *membership) learn(v View) error {
	if s.view.Lists(s.self.ID) && !v.Lists(s.self.ID) {
		return fmt.Errorf("%w: view %d", errLost, v.Number)
	}
	isNamed := v.Mode == Sole && v.Sole == s.self.ID && s.confirmed >= v.SoleSince
	stays := (s.confirmed == v.Number-1 || isNamed) && v.hasOwners() == s.view.hasOwners()
	owners := v.owners()
	var moved []*Term
	for slot, t := range s.terms {
		if t != nil && (!stays || owners[slot] < 0 || v.Members[owners[slot]].ID != s.self.ID) {
			moved = append(moved, t)
			s.terms[slot] = nil
		}
	}
	if s.all != nil && !stays {
		moved, s.all = append(moved, s.all), nil
	}
	for _, t := range moved {
		t.closed.Store(true)
	}
	now := time.Now()
	if v.Mode != s.view.Mode {
		s.owned = now
	}
	if v.hasOwners() != s.view.hasOwners() {
		s.since, s.whole = now, now
		s.heartbeats.hurries.Store(v.hasOwners())
	}
	s.view, s.learned, s.installed, s.wanted = v, now, false, time.Time{}
	s.cleared = make(map[ID]standing)
	s.heartbeats.plan.Store(nil)
	s.publish()
	drain(moved)
	s.end(moved)
	if s.moved = nil; stays { // otherwise another member may have owned them in a view that this one missed
		s.moved = moved
	}
	return nil
}

// drain waits until no call of moved is in progress, at most drainWithin.
func drain(moved []*Term) {
	until := time.Now().Add(drainWithin)
	for _, t := range moved {
		for t.calls.Load() > 0 && time.Now().Before(until) {
			time.Sleep(drainPoll)
		}
	}
}

// confirm writes into this member's row that it follows the view.
func (s *membership) confirm(ctx context.Context) error {
	for s.view.Lists(s.self.ID) && s.confirmed < s.view.Number {
		mine := row{State: stateIn, Confirmed: s.view.Number, Address: s.self.Address}
		version, err := s.store.Set(ctx, rowCell(s.self.ID), s.version, encode(mine))
		if err == nil {
			s.version, s.confirmed = version, s.view.Number
			return nil
		}
		r, version, err := readRow(ctx, s.store, s.self.ID, true)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", errOwnRow, err)
		case r.State != stateIn:
			return ErrOut
		}
		s.version, s.confirmed = version, r.Confirmed
	}
	return nil
}

// install checks whether the view is in force, and then begins this member's terms.
func (s *membership) install(ctx context.Context) error {
	if s.installed || s.view.Number == 0 {
		return nil
	}
	known, err := s.waitedFor(ctx)
	if err != nil {
		return err
	}
	if !s.view.installed(known) {
		return s.setOutLate(ctx, known)
	}
	s.installed = true
	begun := s.begin()
	s.publish()
	s.cluster.inbox.deliver(s.view.Number, begun)
	s.startLookThrough(begun)
	st := s.cluster.Status()
	s.cluster.opts.Logger.Info("a view is in force", "view", s.view.Number, "mode", s.view.Mode,
		"members", len(s.view.Members), "owned_slots", st.Owned, "self", s.self.ID, "sole_owner", s.view.Sole)
	return nil
}

// waitedFor returns the standings of the members for which the view waits. A member that is out or has confirmed it
// stays so, and is not read again.
func (s *membership) waitedFor(ctx context.Context) (map[ID]standing, error) {
	known, err := s.standings(ctx, slices.DeleteFunc(slices.Clone(s.view.Must), func(id ID) bool {
		_, cleared := s.cleared[id]
		return cleared
	}))
	if err != nil {
		return nil, err
	}
	for id, st := range known {
		if st.out || st.confirmed >= s.view.Number {
			s.cleared[id] = st
		}
	}
	maps.Copy(known, s.cleared)
	return known, nil
}

// begin begins this member's terms by the view, except those that it has already. It returns those for single slots.
func (s *membership) begin() (begun []*Term) {
	if !s.view.Lists(s.self.ID) {
		return nil
	}
	if s.view.Mode == Shared {
		if s.all == nil {
			s.all = s.term(allSlots)
		}
		return nil
	}
	for slot, i := range s.view.owners() {
		if i >= 0 && s.view.Members[i].ID == s.self.ID && s.terms[slot] == nil {
			s.terms[slot] = s.term(slot)
			begun = append(begun, s.terms[slot])
		}
	}
	return begun
}

// term returns a term that begins with the view.
func (s *membership) term(slot int) *Term {
	return &Term{Slot: slot, Since: s.view.Number, membership: s, began: time.Now()}
}

// standings returns the standings of members. It reads rowsAtOnce rows at the same time: one after the other, many rows
// would take longer than storeWithin if the store is slow.
func (s *membership) standings(ctx context.Context, ids []ID) (map[ID]standing, error) {
	found := make([]standing, len(ids))
	var all errgroup.Group
	all.SetLimit(rowsAtOnce)
	for i, id := range ids {
		all.Go(func() (err error) {
			if found[i], err = standingOf(ctx, s.store, id); err != nil && id == s.self.ID {
				err = fmt.Errorf("%w: %w", errOwnRow, err)
			}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	known := make(map[ID]standing, len(ids))
	for i, id := range ids {
		known[id] = found[i]
	}
	return known, nil
}

// publish routes calls by the view that this member knows now.
func (s *membership) publish() {
	s.cluster.put(&routes{
		view: s.view, owners: s.view.owners(), terms: s.terms, all: s.all, installed: s.installed, membership: s,
	})
}

// endAll ends every term, and returns them.
func (s *membership) endAll() []*Term {
	var ended []*Term
	for _, t := range append(s.terms[:], s.all) {
		if t != nil {
			t.closed.Store(true)
			ended = append(ended, t)
		}
	}
	drain(ended)
	s.end(ended)
	return ended
}

// end ends terms, and writes units admitted in them that are not written yet, within flushWithin.
func (s *membership) end(terms []*Term) {
	for _, t := range terms {
		t.end()
	}
	if s.cluster.opts.Flush == nil || len(terms) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(s.lasting, flushWithin)
	defer cancel()
	s.cluster.opts.Flush(ctx)
}

// leave makes this member's row say out, so that others need not wait for it, or else creates its goneCell. It reports
// whether either succeeded. All terms must have ended.
func (s *membership) leave(ctx context.Context) (left bool) {
	if !s.isIn() {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, leaveWithin)
	defer cancel()
	err := setOut(limited, s.store, s.self.ID)
	if err != nil {
		limited, cancel := context.WithTimeout(ctx, rowWithin)
		defer cancel()
		err = createGone(limited, s.store, s.self.ID)
	}
	if err != nil {
		s.cluster.opts.Logger.Warn("others will have to find out that this instance is gone", "error", err)
		return false
	}
	return true
}
