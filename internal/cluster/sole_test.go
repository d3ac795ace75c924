package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// sole returns the instance that owns every slot, as all of w agree.
func (w *world) sole() *instance {
	w.t.Helper()
	w.holdMode(Sole)
	for _, in := range w.alive {
		if st := in.cluster.Status(); st.View.Sole == st.Self {
			if st.Owned != Slots {
				w.t.Errorf("the sole owner owns %d slots of %d", st.Owned, Slots)
			}
			return in
		}
	}
	w.t.Fatal("nobody is the sole owner")
	return nil
}

// stop has in leave as it should, and starts another instance in its place.
func (w *world) restart(in *instance) {
	w.mu.Lock()
	w.alive = slices.DeleteFunc(w.alive, func(other *instance) bool { return other == in })
	w.mu.Unlock()
	in.stop()
	<-in.ended
	w.start(true)
	time.Sleep(5 * time.Second)
}

func views(in *instance) int64 { return in.cluster.Status().View.Number }

// TestOneOwnsWhileLittleIsDone holds that a cluster begins with a sole owner, which keeps its terms while others
// come and go, also if it does not know all views in between.
func TestOneOwnsWhileLittleIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trioOf(t, 1, Sole)
		defer end()
		sole := w.sole()
		p, err := sole.cluster.Enter(t.Context(), 7)
		if err != nil || p.Term == nil {
			t.Fatalf("the sole owner decides by %+v, error %v", p, err)
		}
		p.Term.Leave()
		others := slices.DeleteFunc(slices.Clone(w.alive), func(in *instance) bool { return in == sole })
		w.restart(others[0])
		w.kill(slices.Index(w.alive, others[1]))
		w.start(true)
		time.Sleep(5 * time.Second)
		if w.sole() != sole || p.Term.Ended() {
			t.Errorf("the sole owner changed, or its term of slot 7 has ended: %t", p.Term.Ended())
		}
		// It stands still for less than it is set out for, while one leaves and another joins.
		before := views(sole)
		sole.link.mu.Lock()
		sole.link.still = time.Now().Add(1500 * time.Millisecond)
		sole.link.mu.Unlock()
		leaves := slices.DeleteFunc(slices.Clone(w.alive), func(in *instance) bool { return in == sole })[0]
		w.restart(leaves)
		if w.sole() != sole || p.Term.Ended() || views(sole) == before {
			t.Errorf("after views %d to %d the sole owner changed, or its term has ended: %t", before, views(sole), p.Term.Ended())
		}
	})
}

// TestSoleOwnerKeepsWhatItMayHave walks through views that a sole owner may not have confirmed.
func TestSoleOwnerKeepsWhatItMayHave(t *testing.T) {
	me, other := Member{ID: "me", Address: "a"}, Member{ID: "other", Address: "b"}
	both := []Member{me, other}
	sole := func(number, since int64, id ID) View {
		return View{Number: number, Mode: Sole, Members: both, Sole: id, SoleSince: since}
	}
	for _, test := range []struct {
		name      string
		confirmed int64
		was, is   View
		stays     bool
	}{
		{"the next view", 5, sole(5, 3, me.ID), sole(6, 3, me.ID), true},
		{"a later view of the same sole owner", 5, sole(5, 3, me.ID), sole(9, 3, me.ID), true},
		{"named anew since", 5, sole(5, 3, me.ID), sole(9, 7, me.ID), false},
		{"named anew by the view that is missing", 5, sole(5, 3, me.ID), sole(7, 6, me.ID), false},
		{"another one", 5, sole(5, 3, me.ID), sole(6, 6, other.ID), false},
		{"shared", 5, sole(5, 3, me.ID), View{Number: 6, Mode: Shared, Members: both}, false},
		{"a slot of all, next", 5, View{Number: 5, Mode: Owners, Members: both}, sole(6, 6, me.ID), true},
		{"a slot of all, one view missing", 5, View{Number: 5, Mode: Owners, Members: both}, sole(7, 7, me.ID), false},
		{"shared before", 5, View{Number: 5, Mode: Shared, Members: both}, sole(6, 6, me.ID), false},
	} {
		s := newMembership(New(newScript(), &Options{Address: "a"}))
		s.self = me
		s.view, s.confirmed, s.lasting = test.was, test.confirmed, t.Context()
		term := s.term(11)
		s.terms[11] = term
		if err := s.learn(test.is); err != nil {
			t.Fatal(err)
		}
		if got := s.terms[11] == term && !term.Ended(); got != test.stays {
			t.Errorf("%s: the slot stays: %t, want %t", test.name, got, test.stays)
		}
	}
}

// TestSoleNamedAnewIsCounted holds that a view says since when its sole owner is named without a gap.
func TestSoleNamedAnewIsCounted(t *testing.T) {
	members := membersOf("a", "b")
	own := func(id ID) ownership { return ownership{mode: Sole, sole: id} }
	v := View{Number: 1, Mode: Owners, Members: members}
	var since []int64
	for _, o := range []ownership{own("a"), own("a"), own("b"), own("a"), {mode: Owners, all: WhyCPU}, own("a"), {mode: Shared}, own("a")} {
		v = v.next(members, o, nil)
		since = append(since, v.SoleSince)
	}
	if want := []int64{2, 2, 4, 5, 0, 7, 0, 9}; !slices.Equal(since, want) {
		t.Errorf("named since views %v, want %v", since, want)
	}
	older := v
	older.Mode = "a later word"
	if shares := older.Shares(); shares[0]+shares[1] != 0 {
		t.Errorf("a build that does not know a mode gives %v slots to its members", shares)
	}
}

// TestBusySoleOwnerTurnsToAll holds that all own once the sole owner was busy for ten seconds, not for less, that it
// stays so while the load swings, and that one owns again after a while in which one could have done all.
func TestBusySoleOwnerTurnsToAll(t *testing.T) {
	tests := []struct {
		name string
		load Load
		want Why
	}{
		{"its processors", Load{CPU: 0.6}, WhyCPU},
		{"its memory", Load{Memory: 0.9}, WhyMemory},
	}
	if race.Enabled {
		tests = tests[:1]
	}
	for _, test := range tests {
		synctest.Test(t, func(t *testing.T) {
			w, end := trioOf(t, 4, Sole)
			defer end()
			sole := w.sole()
			for range 3 {
				sole.load.Store(&Load{CPU: 0.9, Memory: 0.7})
				time.Sleep(busyFor - time.Second)
				sole.load.Store(&Load{CPU: 0.3, Memory: 0.7})
				time.Sleep(time.Second)
			}
			w.sole()
			before := views(sole)
			for i := range 20 {
				sole.load.Store(&test.load)
				time.Sleep(15 * time.Second)
				if i == 0 {
					w.holdMode(Owners)
				}
				time.Sleep(15 * time.Second)
				sole.load.Store(&Load{CPU: 0.06})
				time.Sleep(30 * time.Second)
			}
			w.holdMode(Owners)
			if st := sole.cluster.Status(); st.View.Number != before+1 || st.View.All != test.want {
				t.Errorf("%s: in ten minutes of swings view %d became %d, because of %q; want one turn because of %q",
					test.name, before, st.View.Number, st.View.All, test.want)
			}
			sole.load.Store(&Load{CPU: 2 * quietCPU})
			time.Sleep(2 * w.quietFor)
			w.holdMode(Owners)
			sole.load.Store(&Load{CPU: quietCPU / 2})
			time.Sleep(w.quietFor - time.Minute)
			w.holdMode(Owners)
			time.Sleep(2 * time.Minute)
			w.sole()
		})
	}
}

// TestOneInstanceWantsAllToOwn holds that all own while any instance wants it.
func TestOneInstanceWantsAllToOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trioOf(t, 5, Sole)
		defer end()
		w.allOwn = true
		w.start(true)
		w.allOwn = false
		time.Sleep(5 * time.Second)
		w.holdMode(Owners)
		if why := w.alive[0].cluster.Status().View.All; why != WhyAsked {
			t.Errorf("all own because of %q, want %q", why, WhyAsked)
		}
		w.restart(w.alive[3])
		w.sole()
	})
}

// TestSoleOwnerThatAnswersLateIsOneOfMany holds that all own once peers get late answers from the sole owner, and
// that this is no cut.
func TestSoleOwnerThatAnswersLateIsOneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trioOf(t, 6, Sole)
		defer end()
		sole := w.sole()
		asker := w.alive[(slices.Index(w.alive, sole)+1)%3]
		w.late.Store(&[2]*instance{asker, sole})
		time.Sleep(lateFor + 2*time.Second)
		w.holdMode(Owners)
		if v := sole.cluster.Status().View; v.All != WhyLate || v.Cuts != 0 {
			t.Errorf("all own because of %q after %d cuts, want %q and none", v.All, v.Cuts, WhyLate)
		}
		turned := views(sole)
		time.Sleep(w.quietFor - time.Minute)
		if views(sole) != turned {
			t.Errorf("answers stay late, and view %d became %d", turned, views(sole))
		}
		w.late.Store(nil)
		time.Sleep(2 * time.Minute)
		w.sole()
	})
}

// TestLateAnswersToTheDeadSayNothing checks that answers of a member from before it died change nothing.
func TestLateAnswersToTheDeadSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trioOf(t, 9, Sole)
		defer end()
		sole := w.sole()
		i := (slices.Index(w.alive, sole) + 1) % 3
		w.late.Store(&[2]*instance{w.alive[i], sole})
		time.Sleep(lateFor * 2 / 3) // a heartbeat says so
		w.kill(i)
		time.Sleep(time.Minute)
		if w.sole() != sole {
			t.Error("the sole owner changed")
		}
	})
}

// TestCutsFromOthersThanTheSoleOwnerChangeNothing holds that only ways to the sole owner matter; once all own, a cut
// is one.
func TestCutsFromOthersThanTheSoleOwnerChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trioOf(t, 7, Sole)
		defer end()
		sole := w.sole()
		i := slices.Index(w.alive, sole)
		one, other := w.alive[(i+1)%3], w.alive[(i+2)%3]
		before := views(sole)
		w.cutOff(one, other, true)
		time.Sleep(time.Minute)
		if w.sole() != sole || views(sole) != before {
			t.Errorf("view %d became %d", before, views(sole))
		}
		w.cutOff(nil, nil, false)
		w.cutOff(sole, other, true)
		if took := w.decides(other, 500); took > 4*time.Second {
			t.Errorf("all keys were decided again %v after the way to the sole owner was cut", took)
		}
		time.Sleep(5 * time.Second)
		w.holdMode(Shared)
	})
}

// TestOrderedRestartMovesSlotsTwice restarts all instances one after the other, beginning with any, and holds that
// at most two of these restarts change the sole owner.
func TestOrderedRestartMovesSlotsTwice(t *testing.T) {
	for first := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w, end := trioOf(t, uint64(first), Sole)
			defer end()
			all := slices.Clone(w.alive)
			moves := 0
			for i := range 3 {
				before := w.sole()
				w.restart(all[(first+i)%3])
				if w.sole() != before {
					moves++
				}
			}
			if moves > 2 {
				t.Errorf("beginning with instance %d, %d restarts changed the sole owner, want at most 2", first, moves)
			}
		})
	}
}

// TestSoleOwnerThatDiesIsFollowedByOne kills the sole owner, whose address refuses connections then, and holds that
// another one decides all keys within two seconds, and most often within one.
func TestSoleOwnerThatDiesIsFollowedByOne(t *testing.T) {
	runs := 40
	if race.Enabled {
		runs = 8
	}
	soon := 0
	for seed := range uint64(runs) { //nolint:gosec // few
		synctest.Test(t, func(t *testing.T) {
			w, end := trioOf(t, seed, Sole)
			defer end()
			time.Sleep(steadyFor + time.Duration(seed)*37*time.Millisecond)
			young := w.start(true) // which nobody knows yet to beat for long
			time.Sleep(5 * time.Second)
			w.kill(slices.Index(w.alive, w.sole()))
			took := w.decides(w.alive[0], 0)
			if took <= time.Second {
				soon++
			}
			if took > 2*time.Second {
				t.Errorf("seed %d: all keys are decided again after %v", seed, took)
			}
			time.Sleep(time.Second)
			if w.sole() == young {
				t.Errorf("seed %d: the next sole owner is one that joined a moment ago", seed)
			}
		})
	}
	if soon < runs/2 {
		t.Errorf("of %d deaths only %d were over within a second", runs, soon)
	}
}

// TestSoleOwnerThatStandsStillIsFollowedByAll holds that all keys are decided again within five seconds, by all: the
// owner may have had too much to do.
func TestSoleOwnerThatStandsStillIsFollowedByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trioOf(t, 8, Sole)
		defer end()
		sole := w.sole()
		sole.link.mu.Lock()
		sole.link.still = time.Now().Add(20 * time.Second)
		sole.link.mu.Unlock()
		asker := w.alive[(slices.Index(w.alive, sole)+1)%3]
		time.Sleep(silentFor + 2*time.Second)
		if st := asker.cluster.Status(); st.View.Mode != Owners || st.View.All != WhySilent || !st.Installed || len(st.View.Members) != 2 {
			t.Errorf("%+v: want two members that own all, because of %q", st.View, WhySilent)
		}
		time.Sleep(30 * time.Second)
		w.holdMode(Owners)
	})
}

// TestMembersWithoutAddressesAreNoSoleOwners holds that the sole owner is one that others reach, also if it joins last.
func TestMembersWithoutAddressesAreNoSoleOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, store: newSimStore(1), cut: make(map[[2]*instance]bool),
			units: units{counted: make(map[int]int), admitted: make(map[int]int)},
		}
		w.store.loses, w.store.stalls = 0, 0
		for i := range 3 {
			w.start(i == 2)
			time.Sleep(5 * time.Second)
		}
		if w.sole() != w.alive[2] {
			t.Error("the sole owner is not the one that has an address")
		}
		for _, in := range w.alive {
			in.stop()
			<-in.ended
		}
	})
}
