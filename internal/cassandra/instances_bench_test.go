package cassandra_test

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/garbage"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/peer"
)

// takeInTurn has many callers at a time take what they want, of engines in turn, all of which must be allowed.
func takeInTurn(b *testing.B, engines []*limiter.Engine, want func() *limiter.Call) {
	b.Helper()
	const callers = 768
	var turn atomic.Int64
	b.SetParallelism(callers / 2)
	go func() { _ = garbage.Spare(b.Context(), len(engines)) }() // as so many processes do; it returns nil
	b.ResetTimer()
	report := measureCPU(b)
	b.RunParallel(func(p *testing.PB) {
		e := engines[turn.Add(1)%int64(len(engines))]
		for p.Next() {
			if a, err := e.Do(b.Context(), want()); err != nil || !a.Allowed {
				b.Errorf("%+v, %v", a.Decision, err)
			}
		}
	})
	report()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// running is an instance that owns keys, and reaches others over a network.
type running struct {
	engine  *limiter.Engine
	cluster *cluster.Cluster
	store   *cassandra.Store
	stop    func() // in good order: others get its knowledge
	cut     func() // it from its peers
}

// kill ends r as a process that dies: its knowledge is lost, and its row stays as it is.
func (r *running) kill() {
	r.cut()
	r.store.Close()
	r.stop()
}

func enginesOf(all []*running) (engines []*limiter.Engine) {
	for _, r := range all {
		engines = append(engines, r.engine)
	}
	return engines
}

// startOwners returns instances that own all keys between them and know all of them, on tables of b's own.
func startOwners(b *testing.B, n int, policies []policy.Policy) []*running {
	b.Helper()
	all := startInstances(b, newConfig(b), n, policies)
	awaitSlots(b, all, func(st *cluster.Status) int { return st.Complete })
	return all
}

// startInstances returns instances that begin to decide.
func startInstances(b *testing.B, config cassandra.Config, n int, policies []policy.Policy) (all []*running) {
	b.Helper()
	for range n {
		all = append(all, startInstance(b, config, policies))
	}
	return all
}

func startInstance(b *testing.B, config cassandra.Config, policies []policy.Policy) *running {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	store := newStore(b, config)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	creds, err := peer.SharedSecret([]byte("of more than thirty-two characters"))
	if err != nil {
		b.Fatal(err)
	}
	reaching, cut := context.WithCancel(context.Background()) // a member that leaves hands its knowledge over
	members, pool := store.Members(b.Name()), (*peer.Pool)(nil)
	c := cluster.New(members, &cluster.Options{
		Address: listener.Addr().String(), LookThrough: members.LookThrough, Logger: slog.New(slog.DiscardHandler),
		HandOver: func(ctx context.Context, to cluster.Member, view int64, slots []cluster.Handed) error {
			if reaching.Err() != nil {
				return reaching.Err()
			}
			return pool.HandOver(ctx, to, view, slots)
		},
	})
	pool = peer.NewPool(c, creds, slog.New(slog.DiscardHandler))
	e := limiter.New(store, &limiter.Options{
		Keyer: keys.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second, Local: embedded.New(nil),
		Identifiers: identifier.Reader, Owners: peer.NewOwners(c, pool),
	})
	if err := e.SetPolicies(policies); err != nil {
		b.Fatal(err)
	}
	server := peer.NewServer(listener, creds, e, c, nil)
	var under, peers sync.WaitGroup
	for _, run := range []func(context.Context) error{c.Run, e.Run, store.Run} {
		under.Go(func() { _ = run(ctx) })
	}
	for _, run := range []func(context.Context) error{pool.Run, server.Run} {
		peers.Go(func() { _ = run(reaching) })
	}
	stopped := func() { stop(); under.Wait(); cut(); peers.Wait() }
	b.Cleanup(stopped) // before the store is closed
	return &running{engine: e, cluster: c, store: store, stop: stopped, cut: cut}
}

// awaitSlots waits until the instances go by one view of just them, and all slots between them are such as of counts.
func awaitSlots(b *testing.B, all []*running, of func(*cluster.Status) int) {
	b.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		slots := 0
		for _, r := range all {
			if st := r.cluster.Status(); st.Installed && len(st.View.Members) == len(all) {
				slots += of(&st)
			}
		}
		if slots == cluster.Slots {
			return
		}
	}
	b.Error("the instances do not own all keys between them")
}
