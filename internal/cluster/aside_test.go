package cluster

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestInstanceWithAWrongClockHandsOnCalls sets the clock of one of three instances wrong. The others must decide for its keys,
// calls that reach it must still be decided, and it must come back once its clock is right.
func TestInstanceWithAWrongClockHandsOnCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trio(t, 1)
		defer end()
		wrong := w.alive[0]
		was := wrong.cluster.Self()
		wrong.skewed.Store(true)
		for i, in := range w.alive {
			if took := w.decides(in, 100*i); took > 3*time.Second {
				t.Errorf("instance %d decided all keys again after %v", i, took)
			}
		}
		time.Sleep(10 * time.Second)
		for i, in := range w.alive {
			st := in.cluster.Status()
			if len(st.View.Members) != 2 || !st.Installed || st.View.Lists(was) || i == 0 && st.Owned > 0 {
				t.Errorf("instance %d goes by view %+v, installed %t, owns %d: want one without the first, who owns nothing",
					i, st.View, st.Installed, st.Owned)
			}
		}
		known := wrong.cluster.Known()
		for range 20 { // right for moments
			wrong.skewed.Store(false)
			time.Sleep(backAfter - time.Second)
			wrong.skewed.Store(true)
			time.Sleep(asideAfter)
		}
		if now := w.alive[1].cluster.Known(); now != known {
			t.Errorf("view %d has become view %d", known, now)
		}
		wrong.skewed.Store(false)
		time.Sleep(backAfter + 3*time.Second)
		w.holdMode(Owners)
		if st := wrong.cluster.Status(); st.Owned == 0 || st.Self == was || st.Asides != 1 {
			t.Errorf("it came back as %s, which owns %d slots, after it stood aside %d times", st.Self, st.Owned, st.Asides)
		}
	})
}

// TestMomentsOfAWrongClockChangeNothing holds that an instance stays a member if its clock is wrong only for a moment, or if it
// is the only member.
func TestMomentsOfAWrongClockChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trio(t, 1)
		known := w.alive[0].cluster.Known()
		for range 20 {
			w.alive[0].skewed.Store(true)
			time.Sleep(asideAfter - 300*time.Millisecond)
			w.alive[0].skewed.Store(false)
			time.Sleep(time.Second)
		}
		if now := w.alive[1].cluster.Known(); now != known {
			t.Errorf("view %d has become view %d", known, now)
		}
		end()
		w.alive = nil
		alone := w.start(true)
		defer func() {
			alone.stop()
			<-alone.ended
		}()
		time.Sleep(10 * time.Second)
		was := alone.cluster.Self()
		alone.skewed.Store(true)
		time.Sleep(10 * time.Second)
		if st := alone.cluster.Status(); st.Self != was || st.Owned != Slots {
			t.Errorf("alone, it owns %d slots as %s, was %s", st.Owned, st.Self, was)
		}
	})
}
