package limiter_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// world is one schedule: instances with clocks that differ over one cluster, clients
// that call them, and what the clients saw.
type world struct {
	t         *testing.T
	seed      uint64
	rng       *rand.Rand
	scenario  scenario
	cluster   *cluster
	instances []*process

	mu      sync.Mutex
	history []*record
}

// process is one instance: an engine with a clock of its own. It can stand still for a
// while, as when the machine is busy elsewhere, or die.
type process struct {
	world  *world
	n      int
	ahead  time.Duration // its clock
	off    span          // when its clock is beyond the tolerance
	by     time.Duration // how far it is off then
	engine *limiter.Engine
	dead   chan struct{}
	stop   context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	still []span                      // when it stood still
	turns map[store.Key]time.Duration // after which requests for a key leave
}

type span struct{ from, until time.Duration }

var errDead = errors.Join(store.ErrUnavailable, errors.New("this process is dead"))

// Streams of random numbers of one seed.
const (
	streamWorld = iota
	streamCluster
	streamClients
	streamTallied    = 1 << 32
	streamCrowded    = 1 << 33
	streamConfirming = 1 << 34
	streamReleasing  = 1 << 35
)

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, streamWorld))}
	w.scenario = drawScenario(w.rng).tallied(seed).crowded(seed).confirming(seed).releasing(seed)
	time.Sleep(time.Second + time.Duration(w.rng.Int64N(int64(time.Second)))) // a bubble starts on the edge of all windows
	w.cluster = &cluster{
		start: time.Now(), weather: w.scenario.weather, partitions: make(map[store.Key]*partition),
		rng: rand.New(rand.NewPCG(seed, streamCluster)),
	}
	for i := range w.cluster.clocks { // the clocks of nodes differ by a second at most
		w.cluster.clocks[i] = time.Duration(w.rng.Int64N(int64(time.Second)))
	}
	for range w.scenario.instances {
		w.start(w.clockAhead())
	}
	return w
}

// clockAhead draws by how much a clock is ahead: as much as is tolerated, in either
// direction, or less.
func (w *world) clockAhead() time.Duration {
	switch w.rng.IntN(3) {
	case 0:
		return tolerance
	case 1:
		return -tolerance
	}
	return time.Duration(w.rng.Int64N(int64(2*tolerance+1)) - int64(tolerance)).Truncate(time.Millisecond)
}

func (w *world) start(ahead time.Duration) *process {
	i := &process{world: w, n: len(w.instances), ahead: ahead, dead: make(chan struct{}), ended: make(chan struct{})}
	if w.scenario.skews && i.n > 0 {
		i.off.from = time.Duration(w.rng.Int64N(int64(w.scenario.lasts)))
		i.off.until = i.off.from + time.Duration(w.rng.Int64N(int64(3*time.Second)))
		i.by = time.Duration(2*w.rng.IntN(2)-1) * (2*tolerance + time.Duration(w.rng.Int64N(int64(3*time.Second))))
	}
	opts := limiter.Options{
		ClockTolerance: tolerance, StoreTimeout: timeout, Serial: policy.LevelSerial,
		Consistency: policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum},
		Now:         i.now, Skewed: i.skewed, Jitter: i.jitter,
	}
	if w.scenario.rotated { // half of them write under the new hash key, and all read both
		secrets := []keys.Keyer{secretOf("1"), secretOf("2")}
		opts.Keyer, opts.AlsoRead = secrets[i.n%2], secrets[1-i.n%2:][:1]
	}
	i.engine = limiter.New(i, &opts)
	if err := i.engine.SetPolicies(w.scenario.policies); err != nil {
		w.t.Fatal(err)
	}
	i.takeTurns()
	w.instances = append(w.instances, i)
	var ctx context.Context
	ctx, i.stop = context.WithCancel(context.Background())
	lag := time.Duration(w.rng.Int64N(int64(timeout))) // so that nothing ticks everywhere at once
	go func() {
		defer close(i.ended)
		time.Sleep(lag)
		_ = i.engine.Run(ctx)
	}()
	return i
}

// takeTurns has requests for what the demands of a call count, which are decided at the same time, leave one after the
// other, so that a schedule can be replayed.
func (i *process) takeTurns() {
	i.turns = make(map[store.Key]time.Duration)
	for _, p := range i.world.scenario.policies {
		for _, id := range []keys.Identifier{"hot", "other"} {
			key, err := i.engine.KeyOf(p.Name, id)
			if err != nil {
				i.world.t.Fatal(err)
			}
			i.turns[key] = time.Duration(1 + len(i.turns))
		}
	}
}

func secretOf(id string) keys.Keyer {
	return keys.Keyer{Secret: &keys.HashKey{ID: id, Secret: []byte("sixteen bytes of " + id)}}
}

// now is what i's clock shows.
func (i *process) now() time.Time {
	ahead := i.ahead
	if now := i.world.cluster.now(); i.off.from <= now && now < i.off.until {
		ahead += i.by
	}
	return time.Now().Add(ahead)
}

// skewed says that i's clock is beyond the tolerance, from the moment on at which it is set.
func (i *process) skewed() bool {
	now := i.world.cluster.now()
	return i.off.from <= now && now < i.off.until
}

// jitter is random in the seed, the instance and the moment alone.
func (i *process) jitter(below time.Duration) time.Duration {
	rng := rand.New(rand.NewPCG(i.world.seed, uint64(i.world.cluster.now())<<8|uint64(i.n)))
	return time.Duration(rng.Int64N(int64(below)))
}

// Read asks the cluster, unless i is dead; not while it stands still.
func (i *process) Read(ctx context.Context, q *store.Query) (store.State, error) {
	if err := i.leave(ctx, q.Key); err != nil {
		return store.State{}, err
	}
	return i.world.cluster.read(ctx, i, q)
}

// Write stores w in the cluster, likewise.
func (i *process) Write(ctx context.Context, w *store.Write) error {
	if err := i.leave(ctx, w.Key); err != nil {
		return err
	}
	return i.world.cluster.write(ctx, i, w)
}

func (i *process) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, i, w, wrote)
}

func (i *process) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, i, w, q)
}

// leave says whether a request for key may leave now. One that was about to leave when its process stood still leaves
// after that, whatever its context.
func (i *process) leave(ctx context.Context, key store.Key) error {
	if n, ok := i.turns[key]; ok {
		time.Sleep(n)
	}
	stood := i.stand()
	switch {
	case i.isDead():
		return errDead
	case !stood && ctx.Err() != nil:
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
	return nil
}

// stand waits while i stands still, and reports whether it did.
func (i *process) stand() (stood bool) {
	for {
		i.mu.Lock()
		var last span
		if n := len(i.still); n > 0 {
			last = i.still[n-1]
		}
		i.mu.Unlock()
		now := i.world.cluster.now()
		if last.until <= now {
			return stood
		}
		stood = true
		time.Sleep(last.until - now + (now-last.from)>>10) // in the order in which they were stopped
	}
}

func (i *process) isDead() bool {
	select {
	case <-i.dead:
		return true
	default:
		return false
	}
}

// stoodStill reports whether i stood still at some time of a span.
func (i *process) stoodStill(from, until time.Duration) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.ContainsFunc(i.still, func(s span) bool { return s.from <= until && from <= s.until })
}

// run lets the schedule happen and waits until all that is under way has ended.
func (w *world) run() {
	var all sync.WaitGroup
	for n := range w.scenario.clients {
		c := &client{world: w, n: n, rng: rand.New(rand.NewPCG(w.seed, streamClients+uint64(n)))}
		all.Go(c.run)
	}
	if w.scenario.trouble {
		all.Go(w.makeTrouble)
	}
	all.Wait()
	w.cluster.mu.Lock()
	w.cluster.weather = calm
	w.cluster.mu.Unlock()
	time.Sleep(w.scenario.settles)
	slices.SortStableFunc(w.history, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.began, b.began), cmp.Compare(a.client, b.client))
	})
}

// end ends all processes.
func (w *world) end() {
	for _, i := range w.instances {
		i.stop()
	}
	for _, i := range w.instances {
		<-i.ended
	}
}

// makeTrouble has instances stand still and die, all but the first.
func (w *world) makeTrouble() {
	for w.cluster.now() < w.scenario.lasts {
		time.Sleep(time.Duration(w.rng.Int64N(int64(w.scenario.lasts / 2))))
		i := w.instances[w.rng.IntN(len(w.instances))]
		if i.n > 0 && !i.isDead() && w.rng.IntN(3) == 0 {
			close(i.dead)
			i.stop()
			continue
		}
		now := w.cluster.now()
		if i.stoodStill(now, now) {
			continue
		}
		i.mu.Lock()
		i.still = append(i.still, span{now, now + time.Duration(w.rng.Int64N(int64(longPause)))})
		i.mu.Unlock()
	}
}
