package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// slow is how long these tests take to write units that are only in memory: far longer than the time to confirm a view.
const slow = 40 * time.Second

// slowTrio starts three instances that have units only in memory.
func slowTrio(t *testing.T, mode Mode) (*world, func()) {
	t.Helper()
	w, end := trioOf(t, 1, mode)
	w.unloads.Store(int64(slow))
	time.Sleep(time.Second)
	return w, func() { w.unloads.Store(0); end() }
}

// others returns all instances but in.
func (w *world) others(in *instance) []*instance {
	return slices.DeleteFunc(slices.Clone(w.alive), func(other *instance) bool { return other == in })
}

// holdMembers checks that in has a view in force with this many members.
func (w *world) holdMembers(in *instance, when string, want int) {
	w.t.Helper()
	if st := in.cluster.Status(); len(st.View.Members) != want || !st.Installed {
		w.t.Errorf("%s: %d members, installed %t, want %d", when, len(st.View.Members), st.Installed, want)
	}
}

// holdNobodySetOut holds that no instance was set out.
func (w *world) holdNobodySetOut() {
	w.t.Helper()
	for _, in := range w.alive {
		if n := in.cluster.Status().SetOut; n > 0 {
			w.t.Errorf("an instance was set out %d times", n)
		}
	}
}

// termOf returns a term that in has.
func termOf(t *testing.T, in *instance) *Term {
	t.Helper()
	for _, term := range in.cluster.routes.Load().terms {
		if term != nil {
			return term
		}
	}
	t.Fatal("it owns nothing")
	return nil
}

// TestJoinWaitsForUnwrittenUnits holds that a view with a member that joins is proposed once the others have written what
// they lose by it, and that they decide meanwhile.
func TestJoinWaitsForUnwrittenUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := slowTrio(t, Owners)
		defer end()
		before := slices.Clone(w.alive)
		moving := termOf(t, before[0])
		w.start(true)
		time.Sleep(slow - time.Second)
		w.holdMembers(before[0], "while they write", 3)
		if moving.Ended() {
			t.Error("a term has ended before all is written")
		}
		was := before[0].cluster.Status().View
		time.Sleep(time.Second)
		time.Sleep(5 * time.Second)
		for _, in := range w.alive {
			w.holdMembers(in, "once all is written", 4)
		}
		is := before[0].cluster.Status().View
		for _, in := range before {
			mine, wrote := in.cluster.Self(), in.wrote.Load()
			if wrote == nil {
				t.Fatal("nothing was written")
			}
			after := is.ownersByID()
			for slot, owned := range was.ownersByID() {
				if moves := after[slot] != mine; owned == mine && (*wrote)(slot) != moves {
					t.Fatalf("slot %d moves: %t, and was written: %t", slot, moves, !moves)
				}
			}
		}
		w.holdNobodySetOut()
	})
}

// ownersByID returns the owner of each slot in v.
func (v *View) ownersByID() (ids []ID) {
	for _, i := range v.owners() {
		ids = append(ids, v.Members[i].ID)
	}
	return ids
}

// TestTurnToAllWaitsForUnwrittenUnits holds that a busy sole owner writes what it loses before all own, but not if it answers
// late.
func TestTurnToAllWaitsForUnwrittenUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := slowTrio(t, Sole)
		defer end()
		sole := w.sole()
		sole.load.Store(&Load{CPU: 0.9})
		time.Sleep(slow)
		w.holdMode(Sole)
		time.Sleep(busyFor + 5*time.Second)
		w.holdMode(Owners)
		w.holdNobodySetOut()
	})
	synctest.Test(t, func(t *testing.T) {
		w, end := slowTrio(t, Sole)
		defer end()
		sole := w.sole()
		w.late.Store(&[2]*instance{w.others(sole)[0], sole})
		time.Sleep(5 * time.Second)
		w.holdMode(Owners)
	})
}

// TestLeavingWaitsForUnwrittenUnits holds that a member that is stopped writes all that it has in memory alone, and stays a
// member for as long.
func TestLeavingWaitsForUnwrittenUnits(t *testing.T) {
	for _, mode := range []Mode{Owners, Sole} {
		synctest.Test(t, func(t *testing.T) {
			w, end := slowTrio(t, mode)
			defer end()
			leaves := w.alive[0]
			if mode == Sole {
				leaves = w.sole()
			}
			term := termOf(t, leaves)
			rest := w.others(leaves)
			leaves.stop()
			time.Sleep(slow - time.Second)
			w.holdMembers(rest[0], "while it writes", 3)
			if term.Ended() {
				t.Error("a term has ended before all is written")
			}
			<-leaves.ended
			w.mu.Lock()
			w.alive = rest
			w.mu.Unlock()
			time.Sleep(5 * time.Second)
			w.holdMembers(rest[0], "once all is written", 2)
			w.holdNobodySetOut()
		})
	}
}

// TestDeathWaitsForNobody holds that a death while others write is followed by a view in which nothing moves but what the dead
// had, and that the member that joins follows later.
func TestDeathWaitsForNobody(t *testing.T) {
	for _, mode := range []Mode{Owners, Sole} {
		synctest.Test(t, func(t *testing.T) {
			w, end := slowTrio(t, mode)
			defer end()
			stays := w.alive[0]
			if mode == Sole {
				stays = w.sole()
			}
			kept := termOf(t, stays)
			rest := w.others(stays)
			w.start(true)
			time.Sleep(5 * time.Second)
			w.kill(slices.Index(w.alive, rest[0]))
			time.Sleep(6 * time.Second)
			if mode == Owners { // a sole owner loses nothing by a member that joins
				w.holdMembers(stays, "after the death", 2)
			}
			time.Sleep(2 * slow)
			w.holdMembers(stays, "later", 3)
			if mode == Sole && kept.Ended() {
				t.Error("the sole owner lost a slot")
			}
			w.holdNobodySetOut()
		})
	}
}
