package cluster

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

var (
	simFirst     = flag.Uint64("cluster.first", 1, "seed of the simulation's first schedule")
	simSchedules = flag.Uint64("cluster.schedules", 40, "how many schedules to simulate; a tenth of them with -race")
	simLog       = flag.Bool("cluster.log", false, "log what members do")
)

// TestSimulation lets members join, leave, die, stand still, lose their peers and the time over a store
// that is slow and loses answers, while callers ask all of them for the same keys, and holds that
// no key is ever admitted more than its limit, and that somebody decides for every key again
// once all is calm.
func TestSimulation(t *testing.T) {
	n := *simSchedules
	if race.Enabled {
		n = max(1, n/10)
	}
	for seed := *simFirst; seed < *simFirst+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { simulate(t, seed) }) })
	}
}

const (
	simLimit  = 3
	simKeys   = 12 // asked for at the same time
	simFor    = 25 * time.Second
	simCalm   = 30 * time.Second
	simMember = 4
	simDial   = 50 * time.Millisecond
)

// world is one run of the simulation.
type world struct {
	t     *testing.T
	seed  uint64
	store *simStore
	units units

	allOwn            bool                         // all instances are to own keys
	late              atomic.Pointer[[2]*instance] // of whom the first has late answers from the second
	busyFor, quietFor time.Duration
	unloads           atomic.Int64 // how long it takes to write the units that are only in memory; 0: there are none

	mu      sync.Mutex
	rng     *rand.Rand
	alive   []*instance
	cut     map[[2]*instance]bool
	round   int
	started int

	decided, failed atomic.Int64
}

// instance is one process.
type instance struct {
	world   *world
	cluster *Cluster
	stop    context.CancelFunc
	ended   chan struct{}
	link    *link
	skewed  atomic.Bool // its clock is wrong: it may not decide
	load    atomic.Pointer[Load]

	wrote atomic.Pointer[func(slot int) bool] // the slots of which all was written last; nil: none

	mu   sync.Mutex
	keys map[int]*memory
}

// link is an instance's way to the store. It can be cut for good, and it can stand still.
type link struct {
	*simStore
	mu    sync.Mutex
	dead  bool
	still time.Time // until then nothing passes
}

func (l *link) pass(ctx context.Context) error {
	for {
		l.mu.Lock()
		dead, wait := l.dead, time.Until(l.still)
		l.mu.Unlock()
		switch {
		case dead:
			<-ctx.Done()
			return ctx.Err()
		case wait <= 0:
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *link) Get(ctx context.Context, name string, latest bool) (c Cell, err error) {
	if err = l.pass(ctx); err == nil {
		if c, err = l.simStore.Get(ctx, name, latest); err == nil {
			err = l.pass(ctx)
		}
	}
	return c, err
}

func (l *link) Set(ctx context.Context, name string, have Version, value []byte) (v Version, err error) {
	if err = l.pass(ctx); err == nil {
		if v, err = l.simStore.Set(ctx, name, have, value); err == nil {
			err = l.pass(ctx)
		}
	}
	return v, err
}

func (l *link) Heartbeat(ctx context.Context, b Heartbeat) error {
	if err := l.pass(ctx); err != nil {
		return err
	}
	return l.simStore.Heartbeat(ctx, b)
}

func (l *link) Heartbeats(ctx context.Context) ([]Heartbeat, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	return l.simStore.Heartbeats(ctx)
}

// units has the units in the store, each of which is there from some moment on.
type units struct {
	mu       sync.Mutex
	counted  map[int]int
	admitted map[int]int
}

func (u *units) add(key, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.counted[key] += n
}

func (u *units) total(key int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counted[key]
}

// admit notes an admission, and returns how many there were.
func (u *units) admit(key int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.admitted[key]++
	return u.admitted[key]
}

// memory is the state of a key at its owner.
type memory struct {
	turn chan struct{} // holds a token while the key is decided
	term *Term         // the term in which it was read; nil: it was not read
	used int
}

func (w *world) start(address bool) *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.add(address)
}

// add does what start does. The caller has locked w.
func (w *world) add(address bool) *instance {
	in := &instance{
		world: w, link: &link{simStore: w.store}, keys: make(map[int]*memory), ended: make(chan struct{}),
	}
	w.started++
	in.load.Store(new(Load))
	opts := &Options{StandAside: in.skewed.Load, AllOwn: w.allOwn, Load: func() Load { return *in.load.Load() }}
	opts.Unload, opts.MayUnload = in.unload, func() bool { return w.unloads.Load() > 0 }
	if address {
		opts.Address = fmt.Sprintf("instance-%d", w.started)
	}
	if *simLog {
		opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("instance", w.started)
	}
	in.cluster = New(in.link, opts)
	in.cluster.busyFor = cmp.Or(w.busyFor, busyFor)
	in.cluster.quietFor = cmp.Or(w.quietFor, quietFor)
	ctx, stop := context.WithCancel(context.Background())
	in.stop = stop
	go func() {
		defer close(in.ended)
		var dialling sync.WaitGroup
		dialling.Go(func() { in.dial(ctx) })
		_ = in.cluster.Run(ctx)
		dialling.Wait()
	}()
	w.alive = append(w.alive, in)
	return in
}

func (w *world) pick() (in *instance, key int, rng uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alive) == 0 {
		return nil, 0, 0
	}
	return w.alive[w.rng.IntN(len(w.alive))], w.round*simKeys + w.rng.IntN(simKeys), w.rng.Uint64()
}

// slotOf spreads keys over slots.
func slotOf(key int) int { return int(mix(uint64(key)) % Slots) }

// take asks in for a unit of key.
func (in *instance) take(ctx context.Context, key int) (bool, error) {
	for {
		p, err := in.cluster.Enter(ctx, slotOf(key))
		if err != nil {
			return false, err
		}
		if p.Term != nil {
			defer p.Term.Leave()
			return in.decide(ctx, p.Term, key)
		}
		peer := in.world.peer(in, p.Peer)
		if peer == nil {
			select {
			case <-time.After(20 * time.Millisecond):
				continue
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
		t, err := peer.cluster.EnterFor(ctx, slotOf(key), p.View)
		if errors.Is(err, ErrMoved) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return false, err
		}
		defer t.Leave()
		return peer.decide(ctx, t, key)
	}
}

// dial keeps looking how others are reached until ctx ends.
func (in *instance) dial(ctx context.Context) {
	for ctx.Err() == nil {
		others, _ := in.cluster.Others()
		for _, m := range others {
			_, how := in.world.reach(in, m)
			in.cluster.Reach(m.ID, how)
		}
		select {
		case <-time.After(simDial):
		case <-ctx.Done():
		}
	}
}

// peer returns the instance at m's address if it can be reached.
func (w *world) peer(from *instance, m Member) *instance {
	in, _ := w.reach(from, m)
	return in
}

// reach returns the instance at m's address; nil if it can't be reached.
func (w *world) reach(from *instance, m Member) (*instance, Reach) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.alive {
		switch {
		case in.cluster.opts.Address != m.Address:
		case w.late.Load() != nil && *w.late.Load() == [2]*instance{from, in}:
			return in, Late
		case !w.cut[[2]*instance{from, in}] && !w.cut[[2]*instance{in, from}]:
			return in, Reached
		case w.seed%2 == 0:
			return nil, Unreached
		}
	}
	return nil, Refused
}

// unload writes the units that are only in memory.
func (in *instance) unload(ctx context.Context, moves func(slot int) bool) error {
	if moves == nil {
		return nil
	}
	select {
	case <-time.After(time.Duration(in.world.unloads.Load())):
		in.wrote.Store(&moves)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (in *instance) memoryOf(key int) *memory {
	in.mu.Lock()
	defer in.mu.Unlock()
	m := in.keys[key]
	if m == nil {
		m = &memory{turn: make(chan struct{}, 1)}
		in.keys[key] = m
	}
	return m
}

var errSkewed = errors.New("the clock is wrong")

// decide decides a take as an owner does or, in mode Shared, as every member does.
func (in *instance) decide(ctx context.Context, t *Term, key int) (bool, error) {
	if in.skewed.Load() {
		return false, errSkewed
	}
	w, m := in.world, in.memoryOf(key)
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	warm := !t.Shared() && m.term == t
	if warm && m.used >= simLimit {
		return false, nil
	}
	if err := in.reach(ctx); err != nil {
		return false, err
	}
	w.units.add(key, 1)
	if err := in.reach(ctx); err != nil { // acknowledged
		m.term = nil
		return false, err
	}
	err := t.Verify(ctx)
	for err != nil && !errors.Is(err, ErrOut) && ctx.Err() == nil {
		err = t.Verify(ctx)
	}
	if err != nil {
		m.term = nil
		w.units.add(key, -1)
		return false, err
	}
	if warm {
		m.used++
	} else {
		if err := in.reach(ctx); err != nil {
			m.term = nil
			return false, err
		}
		m.term, m.used = t, w.units.total(key)
		if err := in.reach(ctx); err != nil {
			m.term = nil
			return false, err
		}
	}
	if t.Ended() {
		m.term = nil
		w.units.add(key, -1)
		return false, ErrOut
	}
	if m.used > simLimit {
		m.used--
		w.units.add(key, -1)
		return false, nil
	}
	if n := w.units.admit(key); n > simLimit {
		w.t.Errorf("seed %d, key %d: %d admitted, limit %d", w.seed, key, n, simLimit)
	}
	return true, nil
}

// reach is one way between the instance and the store.
func (in *instance) reach(ctx context.Context) error {
	if err := in.link.pass(ctx); err != nil {
		return err
	}
	if in.world.store.isStalled() { // longer than what moves is waited for
		in.world.store.mu.Lock()
		d := time.Duration(in.world.store.rng.Int64N(int64(2 * time.Second)))
		in.world.store.mu.Unlock()
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return in.world.store.delay(ctx)
}

func simulate(t *testing.T, seed uint64) {
	w := &world{
		t: t, seed: seed, store: newSimStore(seed), rng: rand.New(rand.NewPCG(seed, 2)), cut: make(map[[2]*instance]bool),
		units: units{counted: make(map[int]int), admitted: make(map[int]int)},
	}
	w.allOwn, w.busyFor, w.quietFor = seed%4 == 1, time.Second, 3*time.Second
	addresses := seed%5 != 0
	if seed%3 == 0 {
		w.store.loses = 0.2
	}
	for range 1 + w.rng.IntN(simMember) {
		w.start(addresses)
	}
	ctx, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for range 12 {
		callers.Go(func() { w.call(ctx) })
	}
	until := time.Now().Add(simFor)
	for time.Now().Before(until) && !t.Failed() {
		w.mu.Lock()
		pause := time.Duration(w.rng.IntN(1200)) * time.Millisecond
		w.mu.Unlock()
		time.Sleep(pause)
		w.disturb(addresses)
	}
	w.calm()
	w.holdCalm(addresses)
	stop()
	callers.Wait()
	w.mu.Lock()
	all := w.alive
	w.mu.Unlock()
	for _, in := range all {
		in.stop()
	}
	for _, in := range all {
		<-in.ended
	}
	time.Sleep(time.Minute) // so that all pending changes take effect
	if w.decided.Load() < 500 {
		t.Errorf("seed %d: only %d calls were decided, %d failed", seed, w.decided.Load(), w.failed.Load())
	}
}

// call sends takes to random instances until ctx ends.
func (w *world) call(ctx context.Context) {
	for ctx.Err() == nil {
		in, key, r := w.pick()
		if in != nil {
			limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond<<(r>>32%4)) // longer than what moves is waited for, too
			if _, err := in.take(limited, key); err != nil {
				w.failed.Add(1)
			} else {
				w.decided.Add(1)
			}
			cancel()
		}
		time.Sleep(time.Millisecond + time.Duration(r%uint64(20*time.Millisecond)))
	}
}

// disturb does something that happens to processes.
func (w *world) disturb(addresses bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round++
	i := -1
	if len(w.alive) > 0 {
		i = w.rng.IntN(len(w.alive))
	}
	switch what := w.rng.IntN(14); {
	case i < 0 || what < 3 && len(w.alive) < simMember:
		w.add(addresses)
	case what < 4: // stopped as one should
		in := w.alive[i]
		w.alive = append(w.alive[:i:i], w.alive[i+1:]...)
		in.stop()
	case what < 6: // killed
		in := w.alive[i]
		w.alive = append(w.alive[:i:i], w.alive[i+1:]...)
		in.link.mu.Lock()
		in.link.dead = true
		in.link.mu.Unlock()
		in.stop()
	case what < 8: // stands still
		l := w.alive[i].link
		l.mu.Lock()
		l.still = time.Now().Add(time.Duration(w.rng.IntN(6000)) * time.Millisecond)
		l.mu.Unlock()
	case what < 9:
		w.alive[i].skewed.Store(!w.alive[i].skewed.Load())
	case what < 10 && len(w.alive) > 1:
		w.cut[[2]*instance{w.alive[i], w.alive[(i+1)%len(w.alive)]}] = true
	case what < 12: // has more to do, or less
		w.alive[i].load.Store(&Load{CPU: w.rng.Float64()})
	case what < 13: // the nodes that keep its row are gone
		w.store.darken(rowCell(w.alive[i].cluster.Self()), time.Duration(w.rng.IntN(15000))*time.Millisecond)
	default:
		clear(w.cut)
	}
}

// calm ends all disturbances but those that have happened.
func (w *world) calm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.cut)
	for _, in := range w.alive {
		in.skewed.Store(false)
		in.load.Store(new(Load))
	}
	w.store.mu.Lock()
	w.store.loses, w.store.stalls = 0, 0
	clear(w.store.dark)
	w.store.mu.Unlock()
}

// holdCalm checks that all instances agree, and that each of them has keys decided.
func (w *world) holdCalm(addresses bool) {
	w.mu.Lock()
	if len(w.alive) == 0 {
		w.add(addresses)
	}
	w.mu.Unlock()
	time.Sleep(simCalm)
	w.mu.Lock()
	w.round++
	base, all := w.round*simKeys, w.alive
	w.mu.Unlock()
	for _, in := range all {
		st := in.cluster.Status()
		if !st.Installed || len(st.View.Members) != len(all) {
			w.t.Errorf("seed %d: %d instances live, and %s knows view %d of %d members, installed %t",
				w.seed, len(all), st.Self, st.View.Number, len(st.View.Members), st.Installed)
		}
		for k := range simKeys {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			if _, err := in.take(ctx, base+k); err != nil {
				w.t.Errorf("seed %d: all is calm, and key %d is not decided: %v", w.seed, base+k, err)
			}
			cancel()
		}
	}
}
