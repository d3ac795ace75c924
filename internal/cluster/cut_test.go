package cluster

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// trio starts three instances over a store that loses nothing, and returns a function that ends them.
func trio(t *testing.T, seed uint64) (*world, func()) {
	t.Helper()
	return trioOf(t, seed, Owners)
}

// trioOf is trio with keys that all own, or one.
func trioOf(t *testing.T, seed uint64, mode Mode) (*world, func()) {
	t.Helper()
	w := &world{
		t: t, seed: seed, store: newSimStore(seed), cut: make(map[[2]*instance]bool), allOwn: mode == Owners, quietFor: 5 * time.Minute,
		units: units{counted: make(map[int]int), admitted: make(map[int]int)},
	}
	w.store.loses, w.store.stalls = 0, 0
	for range 3 {
		w.start(true)
	}
	time.Sleep(5 * time.Second)
	w.holdMode(mode)
	return w, func() {
		for _, in := range w.alive {
			in.stop()
		}
		for _, in := range w.alive {
			<-in.ended
		}
		time.Sleep(time.Minute) // for the dead, whose requests end late
	}
}

// holdMode checks that all instances have the same view, and that it has this mode.
func (w *world) holdMode(want Mode) {
	w.t.Helper()
	for i, in := range w.alive {
		if st := in.cluster.Status(); st.View.Mode != want || !st.Installed || len(st.View.Members) != len(w.alive) {
			w.t.Errorf("instance %d goes by view %+v, installed %t, want mode %s with %d members", i, st.View, st.Installed, want, len(w.alive))
		}
	}
}

// decides returns how long it takes until in has decided every key of some.
func (w *world) decides(in *instance, base int) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for key := base; key < base+40; key++ {
		all.Go(func() {
			for err := context.Canceled; err != nil && time.Since(began) < time.Minute; {
				ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
				_, err = in.take(ctx, key)
				cancel()
				time.Sleep(time.Millisecond)
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

func (w *world) ids() (ids [3]ID) {
	for i, in := range w.alive {
		ids[i] = in.cluster.Self()
	}
	return ids
}

func (w *world) cutOff(one, other *instance, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cut {
		w.cut[[2]*instance{one, other}] = true
	} else {
		clear(w.cut)
	}
}

// TestMembersThatAreCutOffShareAllKeys cuts two of three off from each other, and holds that all keys
// are decided within seconds, that nobody is set out, and that keys have owners again a minute after
// the cut, and two minutes after the next one.
func TestMembersThatAreCutOffShareAllKeys(t *testing.T) {
	seeds := uint64(4)
	if race.Enabled {
		seeds = 1
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			w, end := trio(t, seed)
			defer end()
			ids := w.ids()
			for i, apart := range []time.Duration{wholeFor, 2 * wholeFor} {
				w.cutOff(w.alive[0], w.alive[1], true)
				for j, in := range w.alive {
					if took := w.decides(in, 1000*i+100*j); took > 3*time.Second {
						t.Errorf("seed %d: instance %d decided all keys again after %v", seed, j, took)
					}
				}
				w.holdMode(Shared)
				time.Sleep(3 * wholeFor)
				w.holdMode(Shared) // for as long as it lasts
				w.cutOff(nil, nil, false)
				time.Sleep(apart - 2*time.Second)
				w.holdMode(Shared)
				time.Sleep(4 * time.Second)
				w.holdMode(Owners)
				if w.ids() != ids {
					t.Errorf("seed %d: the members were %v, and are %v: some were set out", seed, ids, w.ids())
				}
			}
			if cuts := w.alive[0].cluster.routes.Load().view.Cuts; cuts != 2 {
				t.Errorf("seed %d: %d cuts are known, want 2", seed, cuts)
			}
			time.Sleep(5 * wholeFor) // longer than twice two minutes
			w.cutOff(w.alive[0], w.alive[1], true)
			time.Sleep(5 * time.Second)
			if v := w.alive[0].cluster.routes.Load().view; v.Cuts != 1 || v.Mode != Shared {
				t.Errorf("seed %d: long after, %d cuts are known in mode %s, want 1 in mode %s", seed, v.Cuts, v.Mode, Shared)
			}
		})
	}
}

// TestShortCutsChangeNothing holds that the view stays if members do not reach each other for a moment, or stand still for a
// moment.
func TestShortCutsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trio(t, 2)
		defer end()
		was := w.alive[0].cluster.Known()
		for range 5 {
			w.cutOff(w.alive[0], w.alive[1], true)
			time.Sleep(cutFor - 300*time.Millisecond)
			w.cutOff(nil, nil, false)
			time.Sleep(cutFor)
		}
		// One stands still, so that others do not reach it, and goes on a moment before they do.
		still := w.alive[2]
		w.cutOff(w.alive[0], still, true)
		still.link.mu.Lock()
		still.link.still = time.Now().Add(silentFor - 500*time.Millisecond)
		still.link.mu.Unlock()
		time.Sleep(silentFor)
		w.cutOff(nil, nil, false)
		time.Sleep(2 * time.Second)
		if now := w.alive[0].cluster.Known(); now != was {
			t.Errorf("view %d has become view %d", was, now)
		}
	})
}

// TestDeathIsKnownSoon kills one of three, whose address refuses connections then, and holds that all keys
// are decided again within two seconds, and most often within one: the store stands still now and then.
func TestDeathIsKnownSoon(t *testing.T) {
	const runs = 40
	soon := 0
	for seed := range uint64(runs) {
		synctest.Test(t, func(t *testing.T) {
			w, end := trio(t, seed)
			defer end()
			time.Sleep(time.Duration(seed) * 37 * time.Millisecond) // at any moment between two heartbeats
			w.kill(0)
			took := w.decides(w.alive[0], 0)
			if took <= time.Second {
				soon++
			}
			if took > 2*time.Second {
				t.Errorf("seed %d: all keys are decided again after %v", seed, took)
			}
		})
	}
	if soon < runs/2 {
		t.Errorf("of %d deaths only %d were over within a second", runs, soon)
	}
}

// TestDeafMembersSetNobodyOut holds that no member counts as silent because no instance reached the store for a while,
// whichever member reads the others' heartbeats first after that.
func TestDeafMembersSetNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, end := trio(t, 3)
		defer end()
		ids := w.ids()
		back := time.Now().Add(10 * time.Second)
		for i, in := range w.alive {
			in.link.mu.Lock()
			in.link.still = back.Add(time.Duration(i) * 200 * time.Millisecond)
			in.link.mu.Unlock()
		}
		time.Sleep(20 * time.Second)
		w.holdMode(Owners)
		if w.ids() != ids {
			t.Errorf("the members were %v, and are %v", ids, w.ids())
		}
	})
}

// TestWhenSilenceIsDeath holds for how long a member has to be silent before it is taken for dead, by whose
// connections it refuses, and that none are enough while it beats.
func TestWhenSilenceIsDeath(t *testing.T) {
	for _, test := range []struct {
		name         string
		mine, others bool // whose connections are refused
		after        time.Duration
	}{
		{"nobody's", false, false, silentFor},
		{"another one's", false, true, silentFor},
		{"its own", true, false, refusedFor},
		{"both", true, true, goneFor},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := New(newScript(), nil)
			gone, witness := Member{ID: "gone", Address: "a"}, Member{ID: "witness", Address: "b"}
			p := &heartbeats{store: c.store, ways: &c.ways, heard: make(map[ID]*heard)}
			p.hurries.Store(true)
			beat := func(b Heartbeat) {
				if err := c.store.Heartbeat(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			const last = 20 // of its heartbeats
			for count := int64(1); count < 60; count++ {
				if count == 2 && test.mine {
					c.Reach(gone.ID, Refused)
				}
				of := Heartbeat{Member: witness, Count: count}
				if test.others {
					of.Refused = []ID{gone.ID}
				}
				beat(of)
				if count <= last {
					beat(Heartbeat{Member: gone, Count: count})
				}
				p.listen(t.Context())
				silence := time.Duration(count-last) * hurryEvery
				if got, want := p.silent(gone), silence > test.after; got != want {
					t.Errorf("refused are %s connections, and it beats no more for %v: it is dead %t, want %t", test.name, silence, got, want)
				}
				time.Sleep(hurryEvery)
			}
		})
	}
}

// TestAnAddressIsOneProcess holds that a member is soon taken for dead once another member answers at its address, but never
// while it sends heartbeats.
func TestAnAddressIsOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(newScript(), nil)
		old, later := Member{ID: "old", Address: "a"}, Member{ID: "later", Address: "a"}
		p := &heartbeats{store: c.store, ways: &c.ways, heard: make(map[ID]*heard)}
		p.hurries.Store(true)
		beat := func(m Member, count int64) {
			if err := c.store.Heartbeat(t.Context(), Heartbeat{Member: m, Count: count}); err != nil {
				t.Fatal(err)
			}
		}
		for count := range int64(20) {
			if count < 10 {
				beat(old, count+1)
			} else {
				beat(later, count-9)
			}
			p.listen(t.Context())
			silence := time.Duration(count-9) * hurryEvery
			if got, want := p.silent(old), silence > goneFor; got != want {
				t.Errorf("the old one beats no more for %v: it is dead %t, want %t", silence, got, want)
			}
			if count >= 10 && p.silent(later) {
				t.Error("the later one is taken for dead")
			}
			time.Sleep(hurryEvery)
		}
	})
}

// TestADeathIsOverWithinASecond holds that those that are left decide all keys within a second after one of three was
// killed, whose connections are refused; within two if an answer of the store is late meanwhile, as one in 200 is.
func TestADeathIsOverWithinASecond(t *testing.T) {
	const seeds = 50
	late := 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			w, end := trio(t, 2*seed+1) // odd: connections to the dead are refused
			w.kill(int(seed % 3))
			took := w.decides(w.alive[0], 1000)
			if took > time.Second {
				late++
			}
			if took > 2*time.Second {
				t.Errorf("seed %d: all keys are decided after %v, want at most a second", seed, took)
			}
			end()
		})
	}
	if late > seeds/5 {
		t.Errorf("%d of %d times not all keys are decided within a second", late, seeds)
	}
}

func (w *world) kill(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.alive[i]
	w.alive = append(w.alive[:i:i], w.alive[i+1:]...)
	in.link.mu.Lock()
	in.link.dead = true
	in.link.mu.Unlock()
	in.stop()
}
