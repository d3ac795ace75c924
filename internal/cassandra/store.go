package cassandra

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/migrate"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Store keeps counts in Cassandra. It implements store.Store; make one with
// Open and Close it after use.
type Store struct {
	config     Config
	session    *gocql.Session
	nodes      *conn.Nodes
	datacenter string
	clock      clockOffset
	sweeper    sweeper

	reads      trips[*keyRead]
	firstNodes firstNodes
	writes     trips[*keyWrite]
	written    trips[*writeRead]

	groupWindow atomic.Int64 // the nodes' longest commitlog_sync_group_window, as a time.Duration; 0: none is known. See perBatch
}

var _ store.Store = (*Store)(nil)

// Open connects to a cluster whose tables exist and fit this binary, and measures its clock. The error is a Mistake if waiting
// does not help.
func Open(ctx context.Context, config Config) (*Store, error) {
	config = config.WithDefaults()
	if err := config.Check(); err != nil {
		return nil, err
	}
	datacenter, err := conn.LocalDatacenter(ctx, &config)
	if err != nil {
		return nil, conn.Judged(err)
	}
	cl, nodes := config.Settings(datacenter)
	cl.Keyspace = config.Keyspace
	if config.Traced {
		cl.QueryObserver, cl.BatchObserver = observer{}, observer{}
	}
	session, err := conn.Connect(ctx, cl)
	if err != nil {
		return nil, conn.KeyspaceError(&config, err)
	}
	s := &Store{config: config, session: session, nodes: nodes, datacenter: datacenter}
	s.clock.every, s.clock.again = clockInterval, make(chan struct{}, 1)
	s.sweeper = sweeper{session: session, config: &s.config}
	s.openTrips()
	if err := migrate.Check(ctx, &s.config, session); err != nil {
		session.Close()
		return nil, conn.Judged(err)
	}
	s.clock.measure(ctx, s)
	_, _ = s.lateCommitlogs(ctx) // if it fails, batches are as large as without group commits
	return s, nil
}

// openTrips sets up the batching of requests into trips.
func (s *Store) openTrips() {
	timeout, traced := s.config.Timeout, s.config.Traced
	s.reads = trips[*keyRead]{send: s.readTogether, most: maxRead, timeout: timeout, traced: traced}
	s.writes = trips[*keyWrite]{send: s.writeKeysTogether, most: maxWritten, timeout: timeout, traced: traced}
	s.written = trips[*writeRead]{
		send: bothWays(s.writeKeysTogether, s.readTogether), most: maxWrittenAndRead, timeout: timeout, traced: traced,
	}
}

// Close ends the connections. Requests in progress fail.
func (s *Store) Close() { s.session.Close() }

// Datacenter returns the name of the local data centre. It is empty if the cluster has several and none was chosen.
func (s *Store) Datacenter() string { return s.datacenter }

// CanPromise returns an error if the guarantee of one of policies holds within one data centre, and no local data centre was
// chosen, as the policies for which the store was opened did not need one. Reads and writes would then go to any data centre.
func (s *Store) CanPromise(policies []policy.Policy) error {
	if s.datacenter != "" {
		return nil
	}
	serial, err := policy.ParseSerialLevel(s.config.SerialConsistency)
	if err == nil && policy.WithinDatacenter(policies, s.config.Consistency, serial) {
		err = s.nodes.Topology().Ambiguous()
	}
	return err
}

// Run measures the clock and sweeps counters until ctx ends. It returns nil.
func (s *Store) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { s.clock.run(ctx, s); return nil })
	g.Go(func() error { s.sweeper.run(ctx); return nil })
	return g.Wait()
}

// Ready returns nil if the store answers a read at the default level.
func (s *Store) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var key store.Key
	now := store.InstantOf(s.config.Now())
	q := store.Query{Key: key, Level: s.config.Consistency.Read, Logs: []store.LogQuery{{Span: store.SpanHour, After: now, Max: 1}}}
	_, err := s.Read(ctx, &q)
	return err
}

// Read returns the state that q asks for, read at q's level.
func (s *Store) Read(ctx context.Context, q *store.Query) (store.State, error) {
	level, err := levelOf(q.Level)
	if err != nil {
		return store.State{}, err
	}
	if q.Cell {
		return s.readCell(ctx, level, q.Key)
	}
	key := q.Key.Bytes()
	state := store.State{Logs: make([]store.Log, len(q.Logs))}
	resets := make([]store.Instant, len(q.Logs)+2)
	var tallies []store.Count
	var all tasks
	for i := range q.Logs {
		all.add(func(ctx context.Context) (err error) {
			state.Logs[i], resets[i], err = s.readLog(ctx, key, level, &q.Logs[i])
			return err
		})
	}
	if q.Counts {
		all.add(func(ctx context.Context) (err error) {
			state.Counts, resets[len(q.Logs)], err = s.readCounts(ctx, key, level, q.ExpireAfter)
			return err
		})
	}
	if q.Tally {
		all.add(func(ctx context.Context) (err error) {
			tallies, resets[len(q.Logs)+1], err = s.readTallies(ctx, key, level, q)
			return err
		})
	}
	if err := all.run(ctx); err != nil {
		return store.State{}, conn.Unavailable("reading", err)
	}
	state.Counts = append(state.Counts, tallies...)
	for _, reset := range resets {
		state.Reset = max(state.Reset, reset)
	}
	return state, nil
}

// Write stores w at w's level. Events and counters are stored independently, so after an error either may be stored without
// the other.
func (s *Store) Write(ctx context.Context, w *store.Write) error {
	level, err := levelOf(w.Level)
	if err != nil {
		return err
	}
	if w.Cell != nil {
		return s.writeCell(ctx, level, w)
	}
	key := w.Key.Bytes()
	var all tasks
	for i := range w.Logs {
		log := &w.Logs[i]
		if len(w.Events) > 0 {
			all.add(func(ctx context.Context) error { return s.appendEvents(ctx, key, level, log, w) })
		}
		if len(w.Remove) > 0 {
			all.add(func(ctx context.Context) error { return s.removeEvents(ctx, key, level, log, w.Remove) })
		}
		if w.Reset > 0 {
			all.add(func(ctx context.Context) error { return s.resetLog(ctx, key, level, log, w) })
		}
	}
	if len(w.Add) > 0 {
		all.add(func(ctx context.Context) error { return s.addCounts(ctx, key, level, w.Add) })
	}
	if len(w.Put) > 0 {
		all.add(func(ctx context.Context) error { return s.writeKey(ctx, key, w.Span, level, putEntries(key, w)) })
	}
	if w.Reset > 0 && w.Tally {
		all.add(func(ctx context.Context) error { return s.resetTallies(ctx, key, level, w) })
	}
	if w.Reset > 0 && w.Counts {
		all.add(func(ctx context.Context) error { return s.resetCounts(ctx, key, level, w) })
	}
	return written(all.run(ctx), len(all))
}

// written returns the error of a write that took this many requests and failed with err.
func written(err error, requests int) error {
	switch {
	case err == nil:
		return nil
	case requests == 1 && errors.Is(err, store.ErrNotStored):
		return conn.Unavailable("writing", err)
	}
	return conn.Unavailable("writing", notSure(err)) // some requests may be stored
}

// tasks are requests that need not wait for each other.
type tasks []func(context.Context) error

func (t *tasks) add(task func(context.Context) error) { *t = append(*t, task) }

// run runs all tasks, a single one without a goroutine. It returns their errors.
func (t tasks) run(ctx context.Context) error {
	switch len(t) {
	case 0:
		return nil
	case 1:
		return t[0](ctx)
	}
	errs := make([]error, len(t))
	var all sync.WaitGroup
	for i, task := range t {
		all.Go(func() { errs[i] = task(ctx) }) // a failure does not stop the others
	}
	all.Wait()
	return errors.Join(errs...)
}

func levelOf(name policy.Level) (gocql.Consistency, error) {
	level, ok := conn.Levels[name]
	if !ok {
		return 0, fmt.Errorf("%w: %q is not a consistency level", store.ErrUnavailable, name)
	}
	return level, nil
}

// repeated marks q as safe to send twice: to a second node after the first has failed, or while the first is slow.
func (s *Store) repeated(q *gocql.Query) *gocql.Query { return s.config.Repeatable(q) }

// exec sends a write that is safe to repeat. It also sends it to a second node if the first fails or is slow.
func (s *Store) exec(q *gocql.Query) error {
	s.repeated(q)
	began := time.Now()
	return s.stored(q.Exec(), q.Attempts(), began)
}

func (s *Store) execBatch(batch *gocql.Batch) error {
	began := time.Now()
	return s.stored(s.session.ExecuteBatch(batch), batch.Attempts(), began)
}

// stored adds store.ErrNotStored to the error of a write that no node has executed, because none could be reached or the
// coordinator knew that too few replicas were alive. It does so only if there was certainly a single attempt, as the error of
// one attempt does not show the outcome of another. The driver counts attempts when they end, so the time matters, too: a
// second attempt may have been sent while the first is still in progress.
func (s *Store) stored(err error, attempts int, began time.Time) error {
	alone := attempts <= 1 && time.Since(began) < s.config.Timeout/conn.SpeculateAfter
	if alone && (errors.Is(err, gocql.ErrNoConnections) || conn.TooFew(err)) {
		return fmt.Errorf("%w: %w", store.ErrNotStored, err)
	}
	return err
}

// whole returns d in whole seconds, as a TTL.
func whole(d time.Duration) int { return int(d / time.Second) }
