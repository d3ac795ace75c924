package cluster

import (
	"cmp"
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemberWhoseRowIsUnreadIsGone holds that a member whose own row nobody can read or write gives its keys up by
// another row, so that all of them are decided again although its row stays as it is, and that it joins anew.
func TestMemberWhoseRowIsUnreadIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, store: newSimStore(1), allOwn: true, rng: rand.New(rand.NewPCG(1, 2)), cut: make(map[[2]*instance]bool),
			units: units{counted: make(map[int]int), admitted: make(map[int]int)},
		}
		w.store.loses, w.store.stalls = 0, 0
		for range 3 {
			w.start(true)
		}
		time.Sleep(5 * time.Second)
		dark := w.alive[1].cluster
		before := dark.Self()
		w.store.darken(rowCell(before), time.Hour)

		time.Sleep(unreadFor - time.Second)
		if now := dark.Self(); now != before {
			t.Errorf("the member %s was given up within %v, and is now %q", before, unreadFor-time.Second, now)
		}
		time.Sleep(10 * time.Second)
		if now := dark.Self(); now == before || now == "" {
			t.Errorf("the instance is member %q, and was %q: want another membership", now, before)
		}
		if st := dark.Status(); st.Unread != 1 || st.SetOut != 1 {
			t.Errorf("%d memberships ended, %d of them as the row was unread; want one", st.SetOut, st.Unread)
		}
		for key := range 60 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := w.alive[key%3].take(ctx, key); err != nil {
				t.Errorf("key %d is not decided: %v", key, err)
			}
			cancel()
		}
		for _, in := range w.alive {
			in.stop()
			<-in.ended
		}
	})
}

// TestInstanceThatCanNotJoinTriesAnotherID checks that an instance that can't make its row tries one under another id.
func TestInstanceThatCanNotJoinTriesAnotherID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		first := "" // name that is set, by the one goroutine that tends
		s.set = func(name string, _ Version) (bool, error) {
			first = cmp.Or(first, name)
			if name == first {
				return true, errDark
			}
			return false, nil
		}
		c := runs(t, s)
		time.Sleep(unreadFor + time.Second)
		if st := c.Status(); st.Owned != Slots {
			t.Errorf("after %v it owns %d slots of %d", unreadFor+time.Second, st.Owned, Slots)
		}
	})
}

// TestStoreThatIsGoneEndsNoMembership holds that no member gives up its keys because all of the store can't be read.
func TestStoreThatIsGoneEndsNoMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		c := runs(t, s)
		time.Sleep(time.Second)
		before := c.Self()
		s.darken(rowCell(before), time.Minute)
		s.darken(viewCell, time.Minute)
		time.Sleep(2 * time.Minute)
		if now := c.Self(); now != before || before == "" {
			t.Errorf("it is member %q, and was %q before all of the store was gone for a minute", now, before)
		}
	})
}

// TestNobodySaysGoneWhileItMayAdmit holds that a member writes its goneCell only after all its terms have ended, because its
// row, which still says in, may become readable at that moment.
func TestNobodySaysGoneWhileItMayAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		c := runs(t, s)
		time.Sleep(time.Second)
		p, err := c.Enter(t.Context(), 1)
		if err != nil || p.Term == nil {
			t.Fatalf("slot 1 is decided by %+v, error %v; want this instance", p, err)
		}
		var said atomic.Bool
		s.set = func(name string, _ Version) (bool, error) {
			if name == goneCell(p.Term.membership.self.ID) {
				said.Store(true)
				if !p.Term.Ended() {
					t.Error("the member says that it is gone, and may still admit")
				}
			}
			return false, nil
		}
		s.darken(rowCell(c.Self()), time.Hour)
		time.Sleep(unreadFor + 4*time.Second)
		if !said.Load() {
			t.Error("the member never said that it is gone")
		}
		p.Term.Leave()
	})
}

// runs returns a cluster over s that runs until the test ends.
func runs(t *testing.T, s Store) *Cluster {
	c := New(s, nil)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return c
}
