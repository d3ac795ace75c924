package cluster

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// script is a store that does what a test says.
type script struct {
	*simStore
	get func(name string, latest bool) (Cell, error)           // nil: the store's own
	set func(name string, have Version) (lost bool, err error) // before the store's own; lost: that is not asked
}

func newScript() *script {
	s := &script{simStore: newSimStore(1)}
	s.slow, s.loses = 0, 0
	return s
}

func (s *script) Get(ctx context.Context, name string, latest bool) (Cell, error) {
	if s.get != nil {
		return s.get(name, latest)
	}
	return s.simStore.Get(ctx, name, latest)
}

func (s *script) Set(ctx context.Context, name string, have Version, value []byte) (Version, error) {
	if s.set != nil {
		if lost, err := s.set(name, have); lost || err != nil {
			return Version{}, err
		}
	}
	return s.simStore.Set(ctx, name, have, value)
}

// TestOutIsKnownByALatestRead holds that a member does not count as out by a read that sees an unfinished write, as the member's
// own read may not see that write.
func TestOutIsKnownByALatestRead(t *testing.T) {
	s := newScript()
	s.get = func(_ string, latest bool) (Cell, error) {
		state := stateOut
		if latest {
			state = stateIn
		}
		return Cell{Value: encode(row{State: state, Confirmed: 3}), Version: Version{1}}, nil
	}
	st, err := standingOf(t.Context(), s, "m")
	if err != nil || st.out || st.confirmed != 3 {
		t.Errorf("m stands as %+v, error %v; want in, confirmed 3", st, err)
	}
}

func TestRowThatIsGoneReadsAsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		if st, err := standingOf(t.Context(), s, "m"); err != nil || !st.out {
			t.Errorf("m, which has no row, stands as %+v, error %v; want out", st, err)
		}
		membership := newMembership(New(s, nil))
		if in, err := membership.readOwnRow(t.Context()); in || err != nil {
			t.Errorf("a member without a row reads in %t, error %v", in, err)
		}
	})
}

// TestViewIsGoneByALatestRead holds that a member stays when a read misses a view that is not settled,
// and leaves when the view is gone.
func TestViewIsGoneByALatestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		membership := newMembership(New(s, nil))
		for !membership.installed {
			if err := membership.followView(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		now, err := s.simStore.Get(t.Context(), viewCell, true)
		if err != nil {
			t.Fatal(err)
		}
		older := Cell{Value: encode(View{}), Version: Version{1}}
		gone := false
		s.get = func(name string, latest bool) (Cell, error) {
			switch {
			case name != viewCell:
				return s.simStore.Get(t.Context(), name, latest)
			case latest && !gone:
				return now, nil
			}
			return older, nil
		}
		if err := membership.followView(t.Context()); err != nil {
			t.Errorf("a read missed the view: %v", err)
		}
		gone = true
		if err := membership.followView(t.Context()); !errors.Is(err, errLost) {
			t.Errorf("the view is gone: error %v, want %v", err, errLost)
		}
	})
}

// TestSetOutWithoutAnswerIsTriedAgain holds that an attempt whose answer is lost does not count as done.
func TestSetOutWithoutAnswerIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		if _, err := s.Set(t.Context(), rowCell("m"), Version{}, encode(row{State: stateIn})); err != nil {
			t.Fatal(err)
		}
		tries := 0
		s.set = func(string, Version) (bool, error) {
			if tries++; tries < 3 {
				return true, errLostAnswer
			}
			return false, nil
		}
		if err := setOut(t.Context(), s, "m"); err != nil {
			t.Fatal(err)
		}
		if st, err := standingOf(t.Context(), s, "m"); err != nil || !st.out {
			t.Errorf("m stands as %+v, error %v after %d tries; want out", st, err, tries)
		}
	})
}

// withAllSlots returns a membership that has all slots by view 1.
func withAllSlots(t *testing.T, s Store) *membership {
	t.Helper()
	membership := newMembership(New(s, &Options{Address: "a"}))
	for range 3 {
		if err := membership.followView(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !membership.installed || membership.view.Number != 1 || membership.terms[0] == nil {
		t.Fatalf("view %d, installed %t: want view 1 in force", membership.view.Number, membership.installed)
	}
	return membership
}

// TestSlotsStayOnlyAlongAnUnbrokenChain holds that a member which confirms a view without having
// confirmed the one before gives up all its slots, as another member may have owned them in between.
func TestSlotsStayOnlyAlongAnUnbrokenChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct {
			name   string
			number int64
			mode   Mode
			stays  bool
		}{
			{"the next view", 2, Owners, true},
			{"one after a view that was not confirmed", 3, Owners, false},
			{"the next view, in which all decide", 2, Shared, false},
		} {
			membership := withAllSlots(t, newScript())
			term := membership.terms[7]
			next := View{Number: test.number, Mode: test.mode, Members: membership.view.Members, Must: []ID{membership.self.ID}}
			if err := membership.learn(next); err != nil {
				t.Fatal(err)
			}
			if got := !term.Ended() && membership.terms[7] == term; got != test.stays {
				t.Errorf("%s: slot 7 stays %t, want %t", test.name, got, test.stays)
			}
		}
	})
}

// TestNothingIsConfirmedBeforeCallsAreOver holds that calls of a slot that moves end, or can admit
// nothing any more, before the member confirms the new view.
func TestNothingIsConfirmedBeforeCallsAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		membership := withAllSlots(t, s)
		place, err := membership.cluster.Enter(t.Context(), 7)
		if err != nil || place.Term == nil {
			t.Fatalf("slot 7 is decided by %+v, error %v", place, err)
		}
		began := time.Now()
		s.set = func(name string, _ Version) (bool, error) {
			if name == rowCell(membership.self.ID) && !place.Term.Ended() {
				t.Errorf("the row was changed after %v, while a call could still admit", time.Since(began))
			}
			return false, nil
		}
		next := View{Number: 3, Mode: Owners, Members: membership.view.Members, Must: []ID{membership.self.ID}}
		if _, err := s.Set(t.Context(), viewCell, membership.at, encode(next)); err != nil {
			t.Fatal(err)
		}
		if err := membership.followView(t.Context()); err != nil {
			t.Fatal(err)
		}
		if membership.confirmed != 3 || time.Since(began) < drainWithin {
			t.Errorf("confirmed view %d after %v, want view 3 after %v", membership.confirmed, time.Since(began), drainWithin)
		}
		if err := place.Term.Verify(t.Context()); !errors.Is(err, ErrOut) {
			t.Errorf("the call may admit: %v, want %v", err, ErrOut)
		}
	})
}

// TestWhatWasAdmittedIsWrittenBeforeTheViewIsConfirmed holds that a member that loses slots, or leaves, writes the units that it
// admitted in them after its last admission, and before another member may decide.
func TestWhatWasAdmittedIsWrittenBeforeTheViewIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, flushed := newScript(), 0
		membership := withAllSlots(t, s)
		membership.lasting = t.Context()
		term := membership.terms[7]
		membership.cluster.opts.Flush = func(ctx context.Context) {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > flushWithin {
				t.Error("writing may take for ever")
			}
			if !term.Ended() {
				t.Error("more can be admitted once all is written")
			}
			flushed++
		}
		s.set = func(name string, _ Version) (bool, error) {
			if name == rowCell(membership.self.ID) && flushed == 0 {
				t.Error("the row was changed before all is written")
			}
			return false, nil
		}
		next := View{Number: 3, Mode: Owners, Members: membership.view.Members, Must: []ID{membership.self.ID}}
		if _, err := s.Set(t.Context(), viewCell, membership.at, encode(next)); err != nil {
			t.Fatal(err)
		}
		if err := membership.followView(t.Context()); err != nil || membership.confirmed != 3 || flushed != 1 {
			t.Errorf("view %d confirmed, flushed %d times, error %v", membership.confirmed, flushed, err)
		}
		term = membership.terms[7]
		if membership.endAll(); flushed != 2 {
			t.Errorf("flushed %d times by who leaves", flushed)
		}
	})
}

// TestVerifiedSaysWhenTheRowWasSeen holds that Verified returns when the last read of the own row began, until the term ends.
func TestVerifiedSaysWhenTheRowWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		membership := withAllSlots(t, s)
		term := membership.terms[7]
		for _, look := range []func(context.Context) error{term.Verify, membership.followView} {
			time.Sleep(time.Second)
			s.get = func(name string, latest bool) (Cell, error) {
				time.Sleep(10 * time.Millisecond)
				return s.simStore.Get(t.Context(), name, latest)
			}
			began := time.Now()
			if err := look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if seen := term.Verified(); seen.Before(began) || time.Since(seen) < 10*time.Millisecond {
				t.Errorf("seen %v ago, by a look that began %v ago", time.Since(seen), time.Since(began))
			}
		}
		term.end()
		if seen := term.Verified(); !seen.IsZero() {
			t.Errorf("a term that is over was seen to hold at %v", seen)
		}
	})
}

// TestFenceReadsAfterItWasAsked checks that a read that was under way when a caller asked does not answer it, and that
// the next one serves all that wait.
func TestFenceReadsAfterItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, reads, answer := true, 0, make(chan struct{})
		f := newFence(func(context.Context) (bool, error) {
			reads++
			was := in
			<-answer
			return was, nil
		})
		first := make(chan error, 1)
		go func() { first <- f.Verify(t.Context()) }()
		synctest.Wait()
		in = false // the member is set out while the first read is under way
		later := make(chan error, 3)
		for range cap(later) {
			go func() { later <- f.Verify(t.Context()) }()
		}
		synctest.Wait()
		answer <- struct{}{}
		if err := <-first; err != nil {
			t.Errorf("the first read says %v", err)
		}
		close(answer)
		for range cap(later) {
			if err := <-later; !errors.Is(err, ErrOut) {
				t.Errorf("a read after the member was set out says %v, want %v", err, ErrOut)
			}
		}
		if reads != 2 {
			t.Errorf("%d reads for four that asked at two moments, want 2", reads)
		}
	})
}

// TestMemberThatStoodStillAdmitsNothing stops a member's store for a minute and holds that its
// term is over when it goes on.
func TestMemberThatStoodStillAdmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: newSimStore(3), allOwn: true}
		w.store.loses = 0
		still, other := w.start(true), w.start(true)
		time.Sleep(5 * time.Second)
		place, err := still.cluster.Enter(t.Context(), ownedBy(t, still))
		if err != nil || place.Term == nil {
			t.Fatalf("%+v, error %v", place, err)
		}
		still.link.mu.Lock()
		still.link.still = time.Now().Add(time.Minute)
		still.link.mu.Unlock()
		time.Sleep(5 * time.Second)
		if p, err := other.cluster.Enter(t.Context(), place.Term.Slot); err != nil || p.Term == nil {
			t.Errorf("five seconds later the other decides by %+v, error %v", p, err)
		} else {
			p.Term.Leave()
		}
		time.Sleep(time.Minute)
		if err := place.Term.Verify(t.Context()); !errors.Is(err, ErrOut) {
			t.Errorf("the call may admit: %v, want %v", err, ErrOut)
		}
		place.Term.Leave()
		time.Sleep(10 * time.Second)
		if st := still.cluster.Status(); !st.Installed || len(st.View.Members) != 2 || st.Owned == 0 {
			t.Errorf("it came back to %+v, want two members and slots of its own", st)
		}
		for _, in := range []*instance{still, other} {
			in.stop()
			<-in.ended
		}
	})
}

// TestMemberThatWasSetOutJoinsAnew sets a member out and holds that it joins under another id, although
// all receive its heartbeats, and no other member has a reason for another view.
func TestMemberThatWasSetOutJoinsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: newSimStore(4), allOwn: true}
		w.store.loses = 0
		one, other := w.start(true), w.start(true)
		time.Sleep(5 * time.Second)
		was := one.cluster.Self()
		if err := setOut(t.Context(), w.store, was); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		st := one.cluster.Status()
		if st.Self == was || st.SetOut != 1 || st.Unread != 0 || !st.Installed || len(st.View.Members) != 2 || st.Owned == 0 {
			t.Errorf("five seconds later it is %s (was %s) after it was set out %d times, in %+v; want another id, two members and "+
				"slots of its own", st.Self, was, st.SetOut, st.View)
		}
		for _, in := range []*instance{one, other} {
			in.stop()
			<-in.ended
		}
	})
}

func ownedBy(t *testing.T, in *instance) int {
	t.Helper()
	for slot, term := range in.cluster.routes.Load().terms {
		if term != nil {
			return slot
		}
	}
	t.Fatal("it owns nothing")
	return 0
}

// TestFiftyJoinAndRestart has fifty instances, twenty with -race, join at once and then restart at once, and holds that
// they agree within seconds on the owner of each slot.
func TestFiftyJoinAndRestart(t *testing.T) {
	n := 50
	if race.Enabled {
		n = 20
	}
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, store: newSimStore(5), allOwn: true}
		w.store.loses = 0
		for range n {
			w.start(true)
		}
		w.holdSettled("joined", n)
		views := w.alive[0].cluster.Status().View.Number
		// 25 of each in two views, most times; 250 where each looks at all rows each time. Each further view is
		// waited for by all until all have confirmed it.
		most := int64(60*n) + (views-2)*int64(2*n*n)
		if reads := w.store.reads.Load(); reads > most {
			t.Errorf("until all had joined, in view %d, rows of members were read %d times, want %d at most", views, reads, most)
		}
		left := w.alive
		w.mu.Lock()
		w.alive = nil
		w.mu.Unlock()
		for _, in := range left {
			in.stop()
			w.start(true)
		}
		w.holdSettled("restarted", n)
		for _, in := range slices.Concat(left, w.alive) {
			in.stop()
			<-in.ended
		}
	})
}

// holdSettled checks that, six seconds from now, this many instances have one view that lists only them, and own all slots.
func (w *world) holdSettled(what string, instances int) {
	w.t.Helper()
	time.Sleep(6 * time.Second)
	owned := 0
	for i, in := range w.alive {
		st := in.cluster.Status()
		owned += st.Owned
		if !st.Installed || len(st.View.Members) != instances {
			w.t.Errorf("6 s after they %s, instance %d knows view %d of %d members, installed %t",
				what, i, st.View.Number, len(st.View.Members), st.Installed)
		}
	}
	if owned != Slots {
		w.t.Errorf("6 s after they %s, %d slots are owned, want all %d", what, owned, Slots)
	}
}

// TestCallsAreHandedBackByWhoLeaves holds that calls which are handed to an instance that leaves don't wait for
// their deadline: it has decided nothing, and their askers can ask the next owner.
func TestCallsAreHandedBackByWhoLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(newScript(), &Options{Address: "leaves:1"})
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = c.Run(ctx)
		}()
		time.Sleep(5 * time.Second)
		waits := make(chan error)
		go func() {
			_, err := c.EnterFor(t.Context(), 0, c.Status().View.Number+1) // a view that it will not see
			waits <- err
		}()
		synctest.Wait()
		leave()
		if err := <-waits; !errors.Is(err, ErrMoved) {
			t.Errorf("a call that waited: %v", err)
		}
		<-ended
		began := time.Now()
		if _, err := c.EnterFor(t.Context(), 0, 1); !errors.Is(err, ErrMoved) || time.Since(began) > 0 {
			t.Errorf("a call that came later: %v after %v", err, time.Since(began))
		}
	})
}

// TestWhoLeavesIsNotSetOut holds that a member gives signs of life until its row says out, however long
// that takes, and no other member sets it out.
func TestWhoLeavesIsNotSetOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stays, leaves := newScript(), newScript()
		leaves.simStore = stays.simStore
		run := func(s *script, address string) (c *Cluster, stop func()) {
			c = New(s, &Options{Address: address})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = c.Run(ctx)
			}()
			return c, func() { cancel(); <-ended }
		}
		c, stop := run(stays, "stays:1")
		defer stop()
		leaving, leave := run(leaves, "leaves:1")
		time.Sleep(5 * time.Second)
		self := leaving.Self()
		if st := c.Status(); !st.Installed || !st.View.Lists(self) {
			t.Fatalf("%+v lists not both members", st)
		}
		c.Reach(self, Refused) // its listener is closed already
		leaves.set = func(string, Version) (bool, error) {
			time.Sleep(refusedFor + gapAfter)
			return false, nil
		}
		var setOut atomic.Bool
		stays.set = func(name string, _ Version) (bool, error) {
			if name == rowCell(self) {
				setOut.Store(true)
			}
			return false, nil
		}
		leave()
		time.Sleep(5 * time.Second)
		if setOut.Load() {
			t.Error("another member set out one that was leaving")
		}
		if st := c.Status(); !st.Installed || st.View.Lists(self) {
			t.Errorf("%+v lists a member that left", st)
		}
	})
}
