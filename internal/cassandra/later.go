package cassandra

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Later is a Store that connects as soon as its cluster can be reached. Until then every request fails at once, with
// store.ErrUnavailable and store.ErrNotConnected. Make one with OpenLater, and Close it after use, when Run has
// returned.
type Later struct {
	config Config
	opened time.Time
	move   func(datacenter string) error // nil: no call

	mu         sync.Mutex // held while local or store changes
	local      bool       // a policy needs a local data centre
	datacenter atomic.Pointer[string]
	store      atomic.Pointer[Store]
	waits      atomic.Pointer[error] // the reason why there is no store
}

var (
	_ store.Store = (*Later)(nil)
	_ store.Feed  = (*Later)(nil)
)

// OpenLater connects as Open does, after a migration if config says so. If the cluster can't be reached or does not answer,
// it logs that, and Run tries again. The error is a Mistake or the error of ctx.
func OpenLater(ctx context.Context, config Config) (*Later, error) {
	l := &Later{config: config.WithDefaults(), opened: time.Now(), local: config.UsesLocalLevels}
	name := config.Datacenter // if empty, the cluster's own name is used once it is reached
	l.datacenter.Store(&name)
	err := l.connect(ctx)
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case IsMistake(err):
		return nil, err
	}
	l.config.Logger.Warn("waiting for Cassandra: until it is reached, policies decide as their on_store_error says", "error", err)
	return l, nil
}

// OnMove sets a function that is called with the name of the local data centre if the name becomes known only when the
// cluster is reached. No request is answered before that call, or within a store timeout after it. Call OnMove before Run.
func (l *Later) OnMove(move func(datacenter string) error) { l.move = move }

// Run connects, unless OpenLater has, and does what Store.Run does. Its error is a Mistake.
func (l *Later) Run(ctx context.Context) error {
	tick := time.NewTicker(conn.ReconnectInterval)
	defer tick.Stop()
	for l.store.Load() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := l.connect(ctx)
		switch {
		case ctx.Err() != nil && err != nil:
			return nil
		case IsMistake(err):
			l.config.Logger.Error("Cassandra can't be used until this is fixed", "error", err)
			return err
		case err != nil:
			l.config.Logger.Debug("still waiting for Cassandra", "error", err)
		}
	}
	return l.store.Load().Run(ctx)
}

// connect makes one attempt.
func (l *Later) connect(ctx context.Context) error {
	s, err := l.open(ctx)
	if err == nil {
		if err = l.adopt(ctx, s); err != nil {
			s.Close()
		}
	}
	if err != nil {
		l.waits.Store(&err)
	}
	return err
}

func (l *Later) open(ctx context.Context) (*Store, error) {
	if l.config.MigrateFirst {
		if err := Migrate(ctx, l.config); err != nil {
			return nil, err
		}
	}
	config := l.config
	config.UsesLocalLevels = false // adopt checks this for the policies that are in force by then
	return Open(ctx, config)
}

// adopt makes s the store that answers requests from now on.
func (l *Later) adopt(ctx context.Context, s *Store) error {
	if name := s.Datacenter(); name != l.Datacenter() {
		l.datacenter.Store(&name)
		if l.move != nil {
			if err := l.move(name); err != nil {
				return &Mistake{Err: err}
			}
			if err := clock.Pause(ctx, l.config.Timeout); err != nil {
				return err
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.local && s.Datacenter() == "" {
		return s.nodes.Topology().Ambiguous()
	}
	l.config.Logger.Info("connected to Cassandra",
		"keyspace", l.config.Keyspace, "datacenter", s.Datacenter(), "after", time.Since(l.opened).Round(time.Millisecond))
	l.store.Store(s)
	return nil
}

// Close ends the connections. Requests in progress fail.
func (l *Later) Close() {
	if s := l.store.Load(); s != nil {
		s.Close()
	}
}

// Datacenter returns the name of the local data centre. It is empty if none was chosen and the cluster has several or
// has not been reached.
func (l *Later) Datacenter() string { return *l.datacenter.Load() }

// Connected reports whether the cluster has been reached.
func (l *Later) Connected() bool { return l.store.Load() != nil }

// CanPromise is Store.CanPromise. Before the cluster is reached it returns nil: if the cluster then has several data
// centres, and none is chosen, Run fails.
func (l *Later) CanPromise(policies []policy.Policy) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.store.Load(); s != nil {
		return s.CanPromise(policies)
	}
	l.local = policy.WithinDatacenter(policies, l.config.Consistency, policy.Level(l.config.SerialConsistency))
	return nil
}

// Ready is Store.Ready. Before the cluster is reached the error wraps store.ErrNotConnected
// and says why.
func (l *Later) Ready(ctx context.Context) error {
	if s := l.store.Load(); s != nil {
		return s.Ready(ctx)
	}
	return fmt.Errorf("%w: %w", store.ErrNotConnected, *l.waits.Load())
}

// Skewed is Store.Skewed; false before the cluster is reached.
func (l *Later) Skewed() bool {
	s := l.store.Load()
	return s != nil && s.Skewed()
}

// ClockOffset is Store.ClockOffset.
func (l *Later) ClockOffset() (ahead time.Duration, known bool) {
	if s := l.store.Load(); s != nil {
		return s.ClockOffset()
	}
	return 0, false
}

// Sweeps is Store.Sweeps.
func (l *Later) Sweeps() Sweeps {
	if s := l.store.Load(); s != nil {
		return s.Sweeps()
	}
	return Sweeps{}
}

// Errors of requests before the cluster is reached.
var (
	errLater       = fmt.Errorf("%w: %w", store.ErrUnavailable, store.ErrNotConnected)
	errStoredLater = fmt.Errorf("%w: %w", errLater, store.ErrNotStored)
)

// Read reads from the store.
func (l *Later) Read(ctx context.Context, q *store.Query) (store.State, error) {
	if s := l.store.Load(); s != nil {
		return s.Read(ctx, q)
	}
	return store.State{}, errLater
}

// Write writes to the store.
func (l *Later) Write(ctx context.Context, w *store.Write) error {
	if s := l.store.Load(); s != nil {
		return s.Write(ctx, w)
	}
	return errStoredLater
}

// WriteEach writes to the store.
func (l *Later) WriteEach(ctx context.Context, w []store.Write, wrote func(i int, err error)) {
	if s := l.store.Load(); s != nil {
		s.WriteEach(ctx, w, wrote)
		return
	}
	for i := range w {
		wrote(i, errStoredLater)
	}
}

// WriteThenRead writes to the store and reads from it.
func (l *Later) WriteThenRead(
	ctx context.Context, w *store.Write, q *store.Query,
) (state store.State, wrote bool, err error) {
	if s := l.store.Load(); s != nil {
		return s.WriteThenRead(ctx, w, q)
	}
	return store.State{}, false, errStoredLater
}

// Publish publishes to the store.
func (l *Later) Publish(ctx context.Context, c *store.Change) error {
	if s := l.store.Load(); s != nil {
		return s.Publish(ctx, c)
	}
	return errStoredLater
}

// Overrides reads from the store.
func (l *Later) Overrides(ctx context.Context, level policy.Level) ([]store.Change, error) {
	if s := l.store.Load(); s != nil {
		return s.Overrides(ctx, level)
	}
	return nil, errLater
}

// Changes reads from the store.
func (l *Later) Changes(ctx context.Context, q *store.ChangeQuery) ([]store.Change, error) {
	if s := l.store.Load(); s != nil {
		return s.Changes(ctx, q)
	}
	return nil, errLater
}
