package peer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/race"
	"github.com/ratelimitd/ratelimitd/internal/seen"
)

var (
	simFirst     = flag.Uint64("owners.first", 1, "seed of the first schedule")
	simSchedules = flag.Uint64("owners.schedules", 25, "how many schedules to simulate; a fifth of them with -race")
	simLog       = flag.Bool("owners.log", false, "log what members do")
)

// TestOwnersSimulation lets engines that own keys decide for callers of all kinds, over a store that
// is slow and fails, while instances join, leave, die, stand still and lose each other, and holds
// that no key is ever admitted more than its limit.
func TestOwnersSimulation(t *testing.T) {
	n := *simSchedules
	if race.Enabled {
		n = max(1, n/5)
	}
	played, decided, handed, beyond, exact, kept, rooms := 0, 0, 0, 0, 0, 0, 0
	for seed := *simFirst; seed < *simFirst+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := simulateOwners(t, seed)
				played, decided, handed, beyond = played+1, decided+w.decided, handed+w.news, beyond+w.beyond
				exact, kept, rooms = exact+w.exact, kept+w.kept, rooms+w.rooms
			})
		})
	}
	t.Logf("of %d conversions, the store had all in the end, and of %d concurrent limits what nobody released", exact, kept)
	t.Logf("after %d resets and refunds, there was as much room as there should be", rooms)
	t.Logf("under guarantee local, more than the limit was admitted of %d keys", beyond)
	if played > 1 && handed < played {
		t.Errorf("in %d schedules, knowledge was handed over or looked up only %d times", played, handed)
	}
	if played > 1 && decided < 400*played { // 1,700 in the mean of 400 schedules; one alone may cut all off for most of its time
		t.Errorf("in %d schedules, only %d calls were decided", played, decided)
	}
}

const (
	simTimeout = 500 * time.Millisecond
	simFor     = 20 * time.Second
	simKeys    = 6
	simDial    = 50 * time.Millisecond
	simSync    = time.Second
	simStale   = 3 * time.Second // after which a claim without an answer is taken over
	simTold    = time.Second     // within which all instances that stand not still have heard of a reset or a refund
	// simLoses is for how long before and after an owner dies, stands still or is set out what it admits
	// under guarantee local may be unknown to the next: it admits for an interval and a store timeout, and
	// a write takes another one.
	simLoses = simSync + 2*simTimeout + 100*time.Millisecond
)

// simPolicies count in every way that owners keep in memory. All windows outlast the simulation.
func simPolicies() []policy.Policy {
	return []policy.Policy{
		{Name: "log", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 4, Window: time.Hour}}},
		{Name: "rows", Counting: policy.CountingRows, Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 5, Window: 24 * time.Hour}}},
		{Name: "counters", Counting: policy.CountingCounters, Limits: []policy.Limit{
			{Algorithm: "fixed-window", Limit: 5, Window: 24 * time.Hour},
		}},
		{Name: "both", Limits: []policy.Limit{
			{Name: "a", Algorithm: "sliding-log", Limit: 6, Window: time.Hour},
			{Name: "b", Algorithm: "fixed-window", Limit: 5, Window: 24 * time.Hour},
		}},
		{Name: "local-log", Guarantee: policy.GuaranteeLocal, Limits: []policy.Limit{
			{Algorithm: "sliding-log", Limit: 5, Window: time.Hour},
		}},
		{Name: "local-rows", Guarantee: policy.GuaranteeLocal, Limits: []policy.Limit{
			{Algorithm: "fixed-window", Limit: 5, Window: 24 * time.Hour},
		}},
		{Name: "local-bucket", Guarantee: policy.GuaranteeLocal, Limits: []policy.Limit{
			{Algorithm: "token-bucket", Limit: 5, Window: 24 * time.Hour},
		}},
		{Name: "local-small-log", Guarantee: policy.GuaranteeLocal, WriteFrom: 50, Limits: []policy.Limit{
			{Algorithm: "sliding-log", Limit: 5, Window: time.Hour},
		}},
		{Name: "local-small-rows", Guarantee: policy.GuaranteeLocal, WriteFrom: 50, Limits: []policy.Limit{
			{Algorithm: "fixed-window", Limit: 5, Window: 24 * time.Hour},
		}},
		{Name: simSlots, Limits: []policy.Limit{{Algorithm: "concurrent", Limit: 4, Window: time.Hour}}},
		{Name: simConversion, Guarantee: policy.GuaranteeLocal, Limits: []policy.Limit{
			{Algorithm: "conversion", Limit: 5, Window: 24 * time.Hour, MinConversion: 50},
		}},
	}
}

// otherDefinitions returns the policies as another file has them, which half of the instances read: they admit as much, and
// need more of the store.
func otherDefinitions() []policy.Policy {
	policies := simPolicies()
	for i := range policies {
		p := &policies[i]
		if l := p.Limits[0]; l.Algorithm == "sliding-log" {
			p.Limits = append(p.Limits, policy.Limit{Name: "more", Algorithm: l.Algorithm, Limit: 9, Window: 2 * l.Window, Shadow: true})
		}
	}
	return policies
}

// simSlots is the policy whose units callers release, most of them soon.
const simSlots = "slots"

// simConversion is a policy under which half of the sent units must be confirmed, once five were sent.
const simConversion = "local-conversion"

// simSmall is how many units of a key an owner has in memory alone: below half of five.
const simSmall = 2

func isLocal(policy string) bool { return strings.HasPrefix(policy, "local-") }

func limitOf(policy string) int64 {
	if policy == "log" || policy == simSlots {
		return 4
	}
	return 5
}

// simWorld is one run.
type simWorld struct {
	t      *testing.T
	seed   uint64
	counts *embedded.Store
	cells  *simCells

	mu       sync.Mutex
	rng      *rand.Rand
	alive    []*simInstance
	leaving  []*simInstance // that are asked no more, and reached by others until they have left
	cut      map[[2]*simInstance]bool
	round    int
	admitted map[string]int64
	local    map[string][]admission // by key, under guarantee local
	confirms map[string]int64       // by key, units that somebody tried to confirm, one confirmation of each first demand
	numbers  map[string]int64       // by conversion and the first demand of a call that confirmed it, its cost
	once     map[string]bool        // idempotency keys of which a call was admitted
	vague    map[string]bool        // keys of which nobody knows what is counted or confirmed
	lost     []time.Time            // when an owner died, stood still or was set out
	decided  int
	fails    float64
	stored   map[store.Key]bool // that something was counted for
	orderly  bool               // instances join and leave, and nothing fails
	beyond   int                // keys under guarantee local of which more than the limit was admitted
	kept     int                // concurrent limits of which the store had what nobody released
	exact    int                // conversions of which the store had all that was sent and confirmed
	news     int                // how often knowledge was handed over or looked up
	own      int                // keys that one caller asks for
	rooms    int                // how often the room after a reset or a refund was held
	costs    costs
	maxKeys  int  // that an owner has in memory; 0: so many that none falls out
	quick    bool // nothing takes any time
}

func (w *simWorld) chance(p float64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.Float64() < p
}

// loses notes that an owner may have admitted now what nobody else knows.
func (w *simWorld) loses() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = append(w.lost, time.Now())
}

func (w *simWorld) below(d time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Duration(w.rng.Int64N(int64(d) + 1))
}

// wait is half of a way to the store.
func (w *simWorld) wait(ctx context.Context) error {
	if w.quick {
		return ctx.Err()
	}
	d := w.below(4 * time.Millisecond)
	if w.chance(0.005) {
		d += w.below(simTimeout)
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admission is of units that a caller was told are admitted.
type admission struct {
	at    time.Time
	units int64
}

// simCells keeps members and heartbeats.
type simCells struct {
	mu    sync.Mutex
	cells map[string]cluster.Cell
	beats map[cluster.ID]cluster.Heartbeat
	at    map[cluster.ID]time.Time
	n     uint64
}

// simInstance is one process.
type simInstance struct {
	w       *simWorld
	name    string
	engine  *limiter.Engine
	cluster *cluster.Cluster
	stop    context.CancelFunc
	ended   chan struct{}
	left    atomic.Bool // it was stopped: it gave back what it held, which counts anew when it is recorded

	mu    sync.Mutex
	row   string // its own, of its latest membership
	dead  bool
	still time.Time
}

// pass lets a request through to the store, or back.
func (in *simInstance) pass(ctx context.Context) error {
	for {
		in.mu.Lock()
		dead, wait := in.dead, time.Until(in.still)
		in.mu.Unlock()
		switch {
		case dead:
			<-ctx.Done()
			return ctx.Err()
		case wait <= 0:
			return in.w.wait(ctx)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (in *simInstance) Get(ctx context.Context, name string, _ bool) (cluster.Cell, error) {
	in.w.costs.rows.Add(1)
	if err := in.pass(ctx); err != nil {
		return cluster.Cell{}, err
	}
	in.w.cells.mu.Lock()
	c := in.w.cells.cells[name]
	in.w.cells.mu.Unlock()
	return c, in.pass(ctx)
}

func (in *simInstance) Set(ctx context.Context, name string, have cluster.Version, value []byte) (cluster.Version, error) {
	if err := in.pass(ctx); err != nil {
		return cluster.Version{}, err
	}
	s := in.w.cells
	s.mu.Lock()
	if s.cells[name].Version != have {
		s.mu.Unlock()
		return cluster.Version{}, cluster.ErrConflict
	}
	s.n++
	v := cluster.Version{byte(s.n), byte(s.n >> 8), byte(s.n >> 16), 1}
	s.cells[name] = cluster.Cell{Value: value, Version: v}
	s.mu.Unlock()
	in.mu.Lock()
	if bytes.Contains(value, []byte(`"in"`)) {
		in.row = name
	}
	other := name != in.row && bytes.Contains(value, []byte(`"out"`))
	in.mu.Unlock()
	if other {
		in.w.loses()
	}
	return v, in.pass(ctx)
}

func (in *simInstance) Heartbeat(ctx context.Context, b cluster.Heartbeat) error {
	if err := in.pass(ctx); err != nil {
		return err
	}
	in.w.cells.mu.Lock()
	in.w.cells.beats[b.ID], in.w.cells.at[b.ID] = b, time.Now()
	in.w.cells.mu.Unlock()
	return nil
}

func (in *simInstance) Heartbeats(ctx context.Context) (all []cluster.Heartbeat, err error) {
	if err := in.pass(ctx); err != nil {
		return nil, err
	}
	in.w.cells.mu.Lock()
	defer in.w.cells.mu.Unlock()
	for id, b := range in.w.cells.beats {
		if time.Since(in.w.cells.at[id]) < cluster.HeartbeatTTL {
			all = append(all, b)
		}
	}
	return all, nil
}

// simCounts is the store of counts as one instance reaches it: it can't hold keys still.
type simCounts struct{ in *simInstance }

func (s simCounts) Read(ctx context.Context, q *store.Query) (store.State, error) {
	s.in.w.costs.reads.Add(1)
	if err := s.in.pass(ctx); err != nil {
		return store.State{}, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	state, err := s.in.w.counts.Read(ctx, q)
	if err == nil {
		err = s.in.pass(ctx)
	}
	if err != nil || s.in.w.chance(s.in.w.fails) {
		return store.State{}, fmt.Errorf("%w: read: %w", store.ErrUnavailable, errors.Join(errors.New("no answer"), err))
	}
	return state, nil
}

func (s simCounts) write(ctx context.Context, do func() error) error {
	s.in.w.costs.writes.Add(1)
	if err := s.in.pass(ctx); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	if s.in.w.chance(s.in.w.fails) {
		if s.in.w.chance(0.5) {
			go func() { // it is stored later
				time.Sleep(s.in.w.below(2 * time.Second))
				_ = do()
			}()
		}
		return fmt.Errorf("%w: no answer", store.ErrUnavailable)
	}
	if err := do(); err != nil {
		return err
	}
	if err := s.in.pass(ctx); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

func (s simCounts) Write(ctx context.Context, w *store.Write) error {
	kept := *w
	return s.write(ctx, func() error {
		s.in.w.note(kept.Key)
		return s.in.w.counts.Write(context.Background(), &kept)
	})
}

func (s simCounts) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, s, w, wrote)
}

func (s simCounts) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, s, w, q)
}

func (w *simWorld) note(key store.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stored[key] = true
}

// lookThrough tells found all that was stored when it began.
func (in *simInstance) lookThrough(ctx context.Context, found func(int, seen.Hash, time.Time)) error {
	if err := in.pass(ctx); err != nil {
		return err
	}
	in.w.mu.Lock()
	stored := slices.Collect(maps.Keys(in.w.stored))
	in.w.mu.Unlock()
	slices.SortFunc(stored, func(a, b store.Key) int { return bytes.Compare(a.Bytes(), b.Bytes()) })
	for _, key := range stored {
		if in.w.chance(0.01) {
			if err := in.pass(ctx); err != nil {
				return err
			}
		}
		found(SlotOf(key), hashOf(key), time.Now().Add(48*time.Hour))
	}
	if in.w.chance(10 * in.w.fails) {
		return errors.New("no answer")
	}
	in.w.mu.Lock()
	in.w.news++
	in.w.mu.Unlock()
	return nil
}

// handOver tells another instance what this one knew: late at times, and twice.
func (in *simInstance) handOver(ctx context.Context, to cluster.Member, view int64, handed []cluster.Handed) error {
	other := in.w.reached(in, to)
	if other == nil || in.w.wait(ctx) != nil {
		return errGone
	}
	late, again := in.w.chance(0.3), in.w.chance(0.3)
	if !late {
		other.cluster.Take(view, layersOf(handed))
	}
	if late || again {
		delay := in.w.below(5 * time.Second)
		go func() {
			time.Sleep(delay)
			other.cluster.Take(view, layersOf(handed))
		}()
	}
	in.w.mu.Lock()
	in.w.news++
	in.w.mu.Unlock()
	return nil
}

// layersOf returns a copy of handed, as it would come over a network.
func layersOf(handed []cluster.Handed) []cluster.Handed {
	copied, err := handedOf(knowledgeOf(1, handed))
	if err != nil {
		panic(err)
	}
	for i := range copied {
		for j := range copied[i].Layers {
			copied[i].Layers[j].Bits = slices.Clone(copied[i].Layers[j].Bits)
		}
	}
	return copied
}

// reached returns the instance that from means by to; nil where it can't reach it.
func (w *simWorld) reached(from *simInstance, to cluster.Member) *simInstance {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range slices.Concat(w.alive, w.leaving) {
		if in.name == to.Address && !w.cut[[2]*simInstance{from, in}] && !w.cut[[2]*simInstance{in, from}] {
			return in
		}
	}
	return nil
}

// left has in refuse connections.
func (w *simWorld) left(in *simInstance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaving = slices.DeleteFunc(w.leaving, func(other *simInstance) bool { return other == in })
}

// simOwners reaches other engines without a network.
type simOwners struct {
	*Owners
	in *simInstance
}

func (o *simOwners) Place(ctx context.Context, key store.Key) (demand.Place, error) {
	p, err := o.cluster.Enter(ctx, SlotOf(key))
	switch {
	case err != nil:
		return demand.Place{}, notYet(err)
	case p.Term != nil:
		return demand.Place{Term: term{p.Term}, View: p.View}, nil
	}
	return demand.Place{Owner: simPeer{o.in, p.Peer}, View: p.View}, nil
}

type simPeer struct {
	from *simInstance
	to   cluster.Member
}

func (p simPeer) Decide(ctx context.Context, c *demand.Charge) error {
	w := p.from.w
	w.costs.hops.Add(1)
	if err := w.wait(ctx); err != nil {
		return errGone
	}
	to := w.reached(p.from, p.to)
	if to == nil {
		return errGone
	}
	there, err := chargeOf(callOf(c))
	if err != nil {
		return err
	}
	err = to.engine.DecideForPeer(ctx, there)
	lost := w.fails
	if c.Op == owner.OpGiveBack { // so that some are lost in a few schedules
		lost *= 20
	}
	if w.wait(ctx) != nil || w.chance(lost) {
		return errUnanswered
	}
	return read(answerOf(0, there, err), c)
}

// dial keeps looking how others are reached until ctx ends.
func (in *simInstance) dial(ctx context.Context) {
	for ctx.Err() == nil {
		others, _ := in.cluster.Others()
		for _, m := range others {
			how := cluster.Reached
			if in.w.reached(in, m) == nil {
				how = cluster.Refused
			}
			in.cluster.Reach(m.ID, how)
		}
		select {
		case <-time.After(simDial):
		case <-ctx.Done():
		}
	}
}

// Tell loses some of what it is told.
func (p simPeer) Tell(c *demand.Charge) {
	kept := *c
	go func() { _ = p.Decide(context.Background(), &kept) }()
}

func (w *simWorld) start() {
	in := &simInstance{w: w, name: fmt.Sprintf("instance-%d", w.rng.IntN(1<<30)), ended: make(chan struct{})}
	opts := &cluster.Options{Address: in.name, HandOver: in.handOver, LookThrough: in.lookThrough}
	opts.Flush = func(ctx context.Context) { in.engine.Flush(ctx) }
	opts.Unload = func(ctx context.Context, moves func(int) bool) error { return in.engine.Unload(ctx, KeysOf(moves)) }
	opts.MayUnload = func() bool { return in.engine.MayUnload() }
	if w.seed%5 == 0 {
		opts.Address = ""
	}
	if *simLog {
		opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("instance", in.name)
	}
	in.cluster = cluster.New(in, opts)
	in.engine = limiter.New(simCounts{in}, &limiter.Options{
		StoreTimeout: simTimeout, SyncInterval: simSync, Now: time.Now, ClockTolerance: 0, Feed: w.counts, MaxKeys: w.maxKeys,
		Owners: &simOwners{&Owners{cluster: in.cluster}, in},
	})
	policies := simPolicies()
	if !w.quick && w.rng.IntN(2) == 0 {
		policies = otherDefinitions()
	}
	if err := in.engine.SetPolicies(policies); err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	in.stop = stop
	go func() {
		defer close(in.ended)
		var all sync.WaitGroup
		deciding, end := context.WithCancel(context.Background())
		all.Go(func() {
			defer end() // the engine's work ends after all calls, as in the service
			_ = in.cluster.Run(ctx)
			w.left(in)
		})
		all.Go(func() { in.dial(ctx) })
		all.Go(func() { _ = in.engine.Run(deciding) })
		all.Wait()
	}()
	w.alive = append(w.alive, in)
}

func newSimWorld(t *testing.T, seed uint64) *simWorld {
	return &simWorld{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), cut: make(map[[2]*simInstance]bool), admitted: make(map[string]int64),
		local: make(map[string][]admission), confirms: make(map[string]int64), numbers: make(map[string]int64), vague: make(map[string]bool),
		once:   make(map[string]bool),
		counts: embedded.New(&embedded.Options{Now: time.Now}), fails: 0.01, stored: make(map[store.Key]bool),
		cells: &simCells{
			cells: make(map[string]cluster.Cell), beats: make(map[cluster.ID]cluster.Heartbeat), at: make(map[cluster.ID]time.Time),
		},
	}
}

// simulateOwners returns the world when all is over.
func simulateOwners(t *testing.T, seed uint64) *simWorld {
	w := newSimWorld(t, seed)
	if seed%3 == 1 {
		w.orderly, w.fails = true, 0
	}
	if seed%2 == 1 {
		w.maxKeys = 128
	}
	w.mu.Lock()
	for range 1 + w.rng.IntN(3) {
		w.start()
	}
	w.mu.Unlock()
	ctx, stop := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for range 10 {
		callers.Go(func() { w.call(ctx) })
	}
	until := time.Now().Add(simFor)
	for time.Now().Before(until) && !t.Failed() {
		time.Sleep(w.below(1500 * time.Millisecond))
		w.disturb()
	}
	stop()
	callers.Wait()
	for _, in := range w.alive {
		in.stop()
	}
	for _, in := range w.alive {
		<-in.ended
	}
	time.Sleep(time.Minute)
	w.mu.Lock() // who hands over late still writes
	defer w.mu.Unlock()
	w.holdLocal()
	if w.orderly && !t.Failed() {
		w.holdConversions()
		w.holdSlots()
	}
	return w
}

// admit notes that units were admitted, and holds that they fit.
func (w *simWorld) admit(policy, id string, units int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := policy + " " + id
	if isLocal(policy) {
		w.local[key] = append(w.local[key], admission{time.Now(), units})
		return
	}
	if w.admitted[key] += units; w.admitted[key] > limitOf(policy) {
		w.t.Errorf("seed %d, %s: %d admitted, limit %d", w.seed, key, w.admitted[key], limitOf(policy))
	}
}

// holdLocal holds that under guarantee local no key was admitted more than its limit, and what was admitted around the
// time when an owner was lost.
func (w *simWorld) holdLocal() {
	for key, all := range w.local {
		total, bound := int64(0), int64(0)
		for _, lost := range w.lost {
			around := int64(0)
			for _, a := range all {
				if d := a.at.Sub(lost); d > -simLoses && d < simLoses {
					around += a.units
				}
			}
			if policy, _, _ := strings.Cut(key, " "); policy == simConversion { // what is confirmed makes room for more
				bound += around
			} else {
				if strings.HasPrefix(policy, "local-small-") {
					around += simSmall
				}
				bound += min(around, 5)
			}
		}
		limit := max(5, 2*w.confirms[key]+1)
		for _, a := range all {
			total += a.units
		}
		if total > limit {
			w.beyond++
		}
		if w.orderly && len(w.lost) > 0 {
			w.t.Errorf("seed %d: %d members were set out though nothing failed", w.seed, len(w.lost))
		}
		if total > limit+bound {
			w.t.Errorf("seed %d, %s: %d admitted, limit %d, and %d around the time when owners were lost", w.seed, key, total, limit, bound)
		}
	}
}

// holdSlots holds that the store has in the end, where nothing failed, what nobody released, and nothing else.
func (w *simWorld) holdSlots() {
	e := w.engineAfterwards()
	for key, held := range w.admitted {
		policy, id, _ := strings.Cut(key, " ")
		if policy != simSlots || w.vague[key] {
			continue
		}
		d, err := e.Check(context.Background(), limiter.Demand{Policy: policy, Identifier: keys.Identifier(id)})
		if err != nil || d.Used != held {
			w.t.Errorf("seed %d, %s: %d used, %v, want %d", w.seed, key, d.Used, err, held)
		}
		w.kept++
	}
}

// engineAfterwards returns one that reads the store, without failures, when all is over.
func (w *simWorld) engineAfterwards() *limiter.Engine {
	quiet := newSimWorld(w.t, 0)
	quiet.quick, quiet.fails, quiet.counts = true, 0, w.counts
	e := limiter.New(simCounts{&simInstance{w: quiet}}, &limiter.Options{StoreTimeout: simTimeout, Now: time.Now})
	if err := e.SetPolicies(simPolicies()); err != nil {
		w.t.Fatal(err)
	}
	return e
}

// holdConversions holds that the store has in the end, where nothing failed, all that was sent and confirmed, once.
func (w *simWorld) holdConversions() {
	e := w.engineAfterwards()
	for key, all := range w.local {
		policy, id, _ := strings.Cut(key, " ")
		if policy != simConversion || w.vague[key] {
			continue
		}
		sent := int64(0)
		for _, a := range all {
			sent += a.units
		}
		d, err := e.Check(context.Background(), limiter.Demand{Policy: policy, Identifier: keys.Identifier(id)})
		if want := max(0, sent-max(0, 2*w.confirms[key]+1-5)); err != nil || d.Used != want {
			w.t.Errorf("seed %d, %s: %d used, %v, want %d: %d sent, %d confirmed", w.seed, key, d.Used, err, want, sent, w.confirms[key])
		}
		w.exact++
	}
}

// doubt notes that the counted units of demands are not known.
func (w *simWorld) doubt(demands []limiter.Demand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range demands {
		w.vague[d.Policy+" "+string(d.Identifier)] = true
	}
}

// confirm confirms on some instance what was admitted of demands, perhaps again.
func (w *simWorld) confirm(demands []limiter.Demand, receipt string) {
	w.mu.Lock()
	var in *simInstance
	if len(w.alive) > 0 {
		in = w.alive[w.rng.IntN(len(w.alive))]
	}
	for i, d := range demands {
		if in == nil || d.Policy != simConversion {
			continue
		}
		key := d.Policy + " " + string(d.Identifier)
		number := key + " by " + demands[0].Policy + " " + string(demands[0].Identifier)
		cost, before := w.numbers[number]
		switch {
		case i == 0 || !before: // else another confirmation of the call's first demand counts
			w.confirms[key] += d.Cost
			w.numbers[number] = d.Cost
		case cost != d.Cost: // which of them came first nobody knows
			w.vague[key] = true
		}
	}
	w.mu.Unlock()
	if in == nil {
		return
	}
	for again := true; again; again = w.chance(0.3) {
		ctx, cancel := context.WithTimeout(context.Background(), simTimeout)
		if _, err := in.engine.Confirm(ctx, receipt); err != nil {
			w.doubt(demands)
		}
		cancel()
	}
}

// call asks again and again, in every way there is.
func (w *simWorld) call(ctx context.Context) {
	policies := simPolicies()
	for ctx.Err() == nil {
		w.mu.Lock()
		var in *simInstance
		if len(w.alive) > 0 {
			in = w.alive[w.rng.IntN(len(w.alive))]
		}
		how, policy := w.rng.IntN(24), policies[w.rng.IntN(len(policies))].Name
		id, other := fmt.Sprintf("%d-%d", w.round, w.rng.IntN(simKeys)), fmt.Sprintf("%d-%d", w.round, w.rng.IntN(simKeys))
		if isLocal(policy) { // long enough for another one to own it
			id = fmt.Sprintf("%d-%d", w.round/4, w.rng.IntN(simKeys))
		}
		cost, once := 1+w.rng.Int64N(2), fmt.Sprint(w.rng.IntN(200))
		w.mu.Unlock()
		if in != nil {
			w.ask(ctx, in, how, policy, id, other, cost, once)
		}
		time.Sleep(time.Millisecond + w.below(12*time.Millisecond))
	}
}

func (w *simWorld) ask(ctx context.Context, in *simInstance, how int, policy, id, other string, cost int64, once string) {
	limited, cancel := context.WithTimeout(ctx, 4*simTimeout)
	defer cancel()
	demand := limiter.Demand{Policy: policy, Identifier: keys.Identifier(id), Cost: cost}
	call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{demand}}
	switch {
	case how >= 18: // several keys, all or none, of which callers share one
		all := limiter.Demand{Policy: policy, Identifier: keys.Identifier("all" + strings.Split(id, "-")[0]), Cost: 1}
		call.Demands = append(call.Demands, all)
		if how >= 21 {
			call.Demands = append(call.Demands, limiter.Demand{Policy: "log", Identifier: keys.Identifier("x" + other), Cost: cost})
		}
	case how == 0:
		call.Demands = append(call.Demands, limiter.Demand{Policy: "log", Identifier: keys.Identifier("x" + other), Cost: 1})
		call.IdempotencyKey = policy + id + other + once + "both"
		call.Demands[0].Cost = 1
	case how == 1:
		call.IdempotencyKey = policy + id + once
		call.Demands[0].Cost = 1
	case how == 2:
		if w.chance(0.3) {
			call.Demands = append(call.Demands, limiter.Demand{Policy: "log", Identifier: keys.Identifier("x" + other), Cost: 1})
		}
		w.reserve(limited, in, call.Demands)
		return
	case how == 3:
		call.Op = count.OpCheck
	case how == 4:
		w.reset(policy)
		return
	case how == 5:
		w.refund(policy)
		return
	}
	answer, err := in.engine.Do(limited, &call)
	if again := w.anyone(); err != nil && call.IdempotencyKey != "" && again != nil && w.chance(0.7) {
		w.doubt(call.Demands)
		time.Sleep(simStale/2 + w.below(simStale)) // most are taken over
		limited, cancel := context.WithTimeout(ctx, 4*simTimeout)
		defer cancel()
		answer, err = again.engine.Do(limited, &call)
	}
	if err != nil {
		w.doubt(call.Demands)
		return
	}
	w.mu.Lock()
	w.decided++
	w.mu.Unlock()
	if !answer.Allowed && answer.Recorded == count.RecordedUnknown { // it was not taken back in time
		w.doubt(call.Demands)
	}
	if call.Op == count.OpCheck || !answer.Allowed || answer.Replayed {
		return
	}
	w.countOnce(call.IdempotencyKey)
	for _, d := range call.Demands {
		w.admit(d.Policy, string(d.Identifier), d.Cost)
	}
	if answer.Receipt != "" && w.chance(0.5) {
		w.confirm(call.Demands, answer.Receipt)
	}
	if answer.Release != "" && w.chance(0.8) {
		time.Sleep(w.below(100 * time.Millisecond))
		w.release(call.Demands, answer.Release)
	}
}

// countOnce holds that of the calls under an idempotency key, one is admitted. Empty: it has none.
func (w *simWorld) countOnce(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if key != "" && w.once[key] {
		w.t.Errorf("seed %d: two calls under the idempotency key %s are admitted", w.seed, key)
	}
	w.once[key] = true
}

// release releases, on some instance, the units of demands that are in use, perhaps again.
func (w *simWorld) release(demands []limiter.Demand, release string) {
	w.mu.Lock()
	var in *simInstance
	if len(w.alive) > 0 {
		in = w.alive[w.rng.IntN(len(w.alive))]
	}
	for _, d := range demands {
		if in != nil && d.Policy == simSlots {
			w.admitted[d.Policy+" "+string(d.Identifier)] -= d.Cost
		}
	}
	w.mu.Unlock()
	if in == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), simTimeout)
	defer cancel()
	if err := in.engine.Refund(ctx, release); err != nil {
		w.doubt(demands)
	}
	if w.chance(0.3) {
		_ = in.engine.Refund(ctx, release)
	}
}

// reserve holds units, and records what they came to a while later, on another instance.
func (w *simWorld) reserve(ctx context.Context, in *simInstance, demands []limiter.Demand) {
	w.doubt(demands) // they may be held yet, or given back
	held, err := in.engine.Do(ctx, &limiter.Call{Op: count.OpCheck, Demands: demands, Reserve: 3 * time.Second})
	if err != nil || held.Reservation == "" {
		return
	}
	holder := in
	time.Sleep(w.below(2 * time.Second))
	w.mu.Lock()
	if len(w.alive) > 0 {
		in = w.alive[w.rng.IntN(len(w.alive))]
	}
	d := &demands[0]
	d.Cost = []int64{limiter.CostNothing, 1, d.Cost, d.Cost, d.Cost + 1}[w.rng.IntN(5)]
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	answer, err := in.engine.Do(ctx, &limiter.Call{Op: count.OpRecord, Demands: demands, Reservation: held.Reservation})
	if err != nil || holder.left.Load() {
		return
	}
	for i, d := range demands {
		w.admit(d.Policy, string(d.Identifier), answer.Settled[i].Cost-answer.Settled[i].Over)
	}
}

// reset fills a key that nobody else asks for, resets it, and holds that there is room for as much again and for no more.
func (w *simWorld) reset(policy string) {
	d := w.ownKey(policy)
	if _, sure := w.fill(d, nil); !sure {
		return
	}
	in := w.anyone()
	if in == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), simTimeout)
	defer cancel()
	if in.engine.Reset(ctx, d.Policy, d.Identifier) != nil {
		return
	}
	by := in // which knows it at once
	if w.chance(0.5) {
		by = nil
		time.Sleep(simTold)
	}
	again, sure := w.fill(d, by)
	w.holdRoom(d, "a reset", int64(len(again)), limitOf(policy), sure)
}

// refund fills a key that nobody else asks for, refunds some of it, perhaps again, and holds that there is room for that, and
// for no more.
func (w *simWorld) refund(policy string) {
	d := w.ownKey(policy)
	receipts, sure := w.fill(d, nil)
	if !sure {
		return
	}
	unfilled := max(0, limitOf(policy)-int64(len(receipts)))
	receipts = slices.DeleteFunc(receipts, func(r string) bool { return r == "" }) // the store's secret was not read in time
	some := min(len(receipts), 1+int(w.below(1)))
	for _, receipt := range receipts[:some] {
		for again := true; again; again = w.chance(0.3) {
			in := w.anyone()
			if in == nil {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), simTimeout)
			err := in.engine.Refund(ctx, receipt)
			cancel()
			// Where it was stopped meanwhile, its work may be over before the call is; the service ends calls first.
			sure = sure && !in.left.Load() && (err == nil || errors.Is(err, limiter.ErrNoReceipt))
		}
	}
	if settled := w.chance(0.7); settled { // else sums may not be subtracted from yet
		time.Sleep(3*simTimeout + simTold + 3*simSync) // the last until a bucket has drained by as much as it was written late
	} else {
		sure = false
	}
	again, filled := w.fill(d, nil)
	w.holdRoom(d, "a refund", int64(len(again)), int64(some)+unfilled, sure && filled)
}

// ownKey returns a demand of one unit for a key of policy that nobody else asks for.
func (w *simWorld) ownKey(policy string) limiter.Demand {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own++
	return limiter.Demand{Policy: policy, Identifier: keys.Identifier(fmt.Sprint("own ", w.own)), Cost: 1}
}

// anyone returns an instance to ask; nil: there is none.
func (w *simWorld) anyone() *simInstance {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alive) == 0 {
		return nil
	}
	return w.alive[w.rng.IntN(len(w.alive))]
}

// fill takes units for d, by one instance or, if by is nil, by one after the other, until one is denied, and returns their
// receipts. sure is false if a call failed: its unit may be counted.
func (w *simWorld) fill(d limiter.Demand, by *simInstance) (receipts []string, sure bool) {
	for len(receipts) <= int(limitOf(d.Policy)) {
		in := by
		if in == nil {
			in = w.anyone()
		}
		if in == nil {
			return receipts, false
		}
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d}}
		if w.chance(0.5) {
			call.IdempotencyKey = fmt.Sprint(d.Policy, d.Identifier, len(receipts), w.below(time.Hour))
		}
		held := w.chance(0.2)
		if held {
			call = limiter.Call{Op: count.OpCheck, Demands: call.Demands, Reserve: 3 * time.Second}
		}
		ctx, cancel := context.WithTimeout(context.Background(), simTimeout)
		a, err := in.engine.Do(ctx, &call)
		cancel()
		if err != nil {
			return receipts, false
		}
		if held && a.Allowed {
			if a, err = w.settle(cmp.Or(by, w.anyone()), a.Reservation); err != nil || a.Settled[0].Over > 0 {
				return receipts, false
			}
		}
		if !a.Allowed {
			return receipts, a.Recorded == count.RecordedNo
		}
		receipts = append(receipts, a.Receipt)
	}
	return receipts, true
}

// settle records a reservation by in; nil: there is no instance.
func (w *simWorld) settle(in *simInstance, reservation string) (limiter.Answer, error) {
	if in == nil {
		return limiter.Answer{}, errGone
	}
	ctx, cancel := context.WithTimeout(context.Background(), simTimeout)
	defer cancel()
	return in.engine.Do(ctx, &limiter.Call{Op: count.OpRecord, Reservation: reservation})
}

// holdRoom holds that after what happened, room more units of d were admitted: no more, and, where nothing fails and no call
// failed, no fewer.
func (w *simWorld) holdRoom(d limiter.Demand, after string, admitted, room int64, sure bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rooms++
	if admitted > room && (w.orderly || !isLocal(d.Policy)) || admitted < room && sure && w.orderly {
		w.t.Errorf("seed %d, %s %s: after %s, %d are admitted, want %d", w.seed, d.Policy, d.Identifier, after, admitted, room)
	}
}

// disturb does something that happens to processes.
func (w *simWorld) disturb() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round++
	i := -1
	if len(w.alive) > 0 {
		i = w.rng.IntN(len(w.alive))
	}
	what := w.rng.IntN(11)
	if w.orderly {
		what %= 4
	}
	switch {
	case i < 0 || what < 3 && len(w.alive) < 4:
		w.start()
	case what < 4:
		in := w.alive[i]
		w.alive, w.leaving = append(w.alive[:i:i], w.alive[i+1:]...), append(w.leaving, in)
		in.left.Store(true)
		in.stop()
	case what < 6:
		in := w.alive[i]
		w.alive = append(w.alive[:i:i], w.alive[i+1:]...)
		in.mu.Lock()
		in.dead = true
		in.mu.Unlock()
		w.lost = append(w.lost, time.Now())
		in.stop()
	case what < 8:
		in := w.alive[i]
		in.mu.Lock()
		in.still = time.Now().Add(time.Duration(w.rng.IntN(5000)) * time.Millisecond)
		in.mu.Unlock()
		w.lost = append(w.lost, time.Now())
	case what < 9 && len(w.alive) > 1:
		w.cut[[2]*simInstance{w.alive[i], w.alive[(i+1)%len(w.alive)]}] = true
	default:
		clear(w.cut)
	}
}
