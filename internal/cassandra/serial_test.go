package cassandra_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

const (
	serialInstances = 4 // processes' worth: each with a session and an engine of its own
	serialLimit     = 5
	// contentionTimeout is generous: a machine that is busy must not make it a failure.
	contentionTimeout = 20 * time.Second
)

// TestThreeNodes makes instances contend for keys, by quorums and by compare-and-set,
// while all is well, while the nodes that coordinate are frozen in the middle of it, while
// two are frozen most of the time, and while one is dead. Then it migrates while one is away.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	cluster := cassandratest.StartCluster(t, &cassandratest.ClusterOptions{
		Nodes: 3, JavaOptions: []string{"-Dcassandra.migration_delay_ms=1000"}, // a minute else, until a node that was paused learns of tables
	})
	config := cassandra.Config{Hosts: cluster.Hosts(), Keyspace: cassandratest.KeyspaceName(t), Connections: 1}
	if err := cassandra.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Run("sixteen processes", func(t *testing.T) { testSixteenProcesses(t, config) })
	patient := openStores(t, config, contentionTimeout)
	t.Run("contention", func(t *testing.T) { testSerialContention(t, patient) })
	hasty := openStores(t, config, pauseTimeout)
	t.Run("paused coordinators", func(t *testing.T) { testPausedCoordinators(t, cluster, hasty) })
	t.Run("frozen node", func(t *testing.T) { testFrozenNode(t, cluster, openStores(t, config, minorityTimeout)[0]) })
	t.Run("stalled majority", func(t *testing.T) {
		testStalledMajority(t, cluster, openStores(t, config, demand.DefaultStoreTimeout))
	})
	t.Run("dead minority", func(t *testing.T) { testDeadMinority(t, cluster, patient) })
	t.Run("one is away", func(t *testing.T) { testOneOfThreeNodesIsAway(t, cluster) })
}

// openStores returns a store for each instance.
func openStores(t *testing.T, config cassandra.Config, timeout time.Duration) []*cassandra.Store {
	t.Helper()
	config.Timeout = timeout
	var stores []*cassandra.Store
	for range serialInstances {
		stores = append(stores, openStore(t, config))
	}
	return stores
}

// serialEngines returns an engine over each store, for one policy and one namespace.
func serialEngines(t *testing.T, stores []*cassandra.Store, timeout time.Duration, p policy.Policy) []*limiter.Engine {
	t.Helper()
	var engines []*limiter.Engine
	for _, store := range stores {
		e := limiter.New(store, &limiter.Options{Keyer: keys.Keyer{Namespace: t.Name()}, StoreTimeout: timeout})
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	return engines
}

// serialPolicy has a bucket that drains a unit in days.
func serialPolicy(algorithm string) policy.Policy {
	return policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: algorithm, Limit: serialLimit, Window: policy.MaxWindow}}}
}

// testSerialContention has all instances take from one key at the same time: nobody is
// denied while there is room, so all of the limit is used, and no more.
func testSerialContention(t *testing.T, stores []*cassandra.Store) {
	for _, algorithm := range []string{"token-bucket", "leaky-bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			const takes = serialLimit // of each instance: the limit is reached by any two of them
			var admitted, denied atomic.Int64
			var all sync.WaitGroup
			for _, e := range serialEngines(t, stores, contentionTimeout, serialPolicy(algorithm)) {
				all.Go(func() {
					for range takes {
						switch d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "somebody"}); {
						case err != nil:
							t.Error(err)
						case d.Allowed:
							admitted.Add(1)
						default:
							denied.Add(1)
						}
					}
				})
			}
			all.Wait()
			if admitted.Load() != serialLimit {
				t.Errorf("%d of %d admitted, %d denied", admitted.Load(), serialLimit, denied.Load())
			}
		})
	}
}

const (
	pauseTimeout = 1200 * time.Millisecond
	pauseTakes   = 3 // of each instance from each key: more than the limit
	// pausePatience is how long something may take that is sure to happen.
	pausePatience = time.Minute
)

// testPausedCoordinators freezes each node in turn while instances take from one key
// after the other, until somebody is left in doubt, and lets it go on with what it was
// about to do.
func testPausedCoordinators(t *testing.T, cluster *cassandratest.Cluster, stores []*cassandra.Store) {
	for _, algorithm := range []string{"token-bucket", "leaky-bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			engines := serialEngines(t, stores, pauseTimeout, serialPolicy(algorithm))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var out outcomes
			wait := out.takeUntil(ctx, t, engines)
			for i := range cluster.Hosts() {
				out.pauseInMidWrite(t, cluster.Node(i), cluster.Node((i+1)%len(cluster.Hosts())))
			}
			cluster.WaitUp()
			cancel()
			wait()
			out.check(t, engines[0])
		})
	}
}

func keyOf(n int) keys.Identifier { return keys.Identifier(fmt.Sprint("key ", n)) }

// keyOutcome is how many takes of one key were answered how.
type keyOutcome struct{ admitted, denied, unknown, failed int64 }

// outcomes are those of all keys.
type outcomes struct {
	mu   sync.Mutex
	keys []keyOutcome
}

// takeUntil has every engine take from one key after the other until ctx ends. The function
// that it returns waits for them.
func (out *outcomes) takeUntil(ctx context.Context, t *testing.T, engines []*limiter.Engine) (wait func()) {
	var all sync.WaitGroup
	for _, e := range engines {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for range pauseTakes {
					d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: keyOf(n)})
					out.add(t, n, &d, err)
				}
			}
		})
	}
	return all.Wait
}

func (out *outcomes) add(t *testing.T, n int, d *count.Decision, err error) {
	out.mu.Lock()
	defer out.mu.Unlock()
	for len(out.keys) <= n {
		out.keys = append(out.keys, keyOutcome{})
	}
	out.keys[n].add(t, d, err)
}

// sum returns the outcomes of all keys together.
func (out *outcomes) sum() (sum keyOutcome) {
	out.mu.Lock()
	defer out.mu.Unlock()
	for _, o := range out.keys {
		sum = keyOutcome{sum.admitted + o.admitted, sum.denied + o.denied, sum.unknown + o.unknown, sum.failed + o.failed}
	}
	return sum
}

// pauseInMidWrite pauses two nodes of three while takes go on, until one of them is left in doubt: of a single node that
// is silent, others soon ask for nothing any more. Then both are resumed.
func (out *outcomes) pauseInMidWrite(t *testing.T, node, next *cassandratest.Node) {
	t.Helper()
	const longestPause = 6 * time.Second // several store timeouts
	admitted := func(o keyOutcome) int64 { return o.admitted }
	unknown := func(o keyOutcome) int64 { return o.unknown }
	for start := time.Now(); time.Since(start) < pausePatience; {
		if !out.more(admitted, pausePatience) {
			break
		}
		node.Pause()
		next.Pause()
		inDoubt := out.more(unknown, longestPause)
		node.Resume()
		next.Resume()
		if inDoubt {
			return
		}
	}
	t.Fatalf("nobody was admitted and then left in doubt in %v: %+v", pausePatience, out.sum())
}

// more waits until more takes than now were answered like this, and reports whether
// they were in time.
func (out *outcomes) more(number func(keyOutcome) int64, within time.Duration) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for before, start := number(out.sum()), time.Now(); time.Since(start) < within; <-tick.C {
		if number(out.sum()) > before {
			return true
		}
	}
	return false
}

func (o *keyOutcome) add(t *testing.T, d *count.Decision, err error) {
	var failed *count.StoreError
	switch {
	case errors.As(err, &failed) && failed.Recorded == count.RecordedUnknown:
		o.unknown++
	case errors.As(err, &failed) && failed.Recorded == count.RecordedNo:
		o.failed++
	case err != nil:
		t.Errorf("%v, want a StoreError that says what is recorded", err)
	case d.Allowed:
		o.admitted++
	default:
		o.denied++
	}
}

// check compares the answers for each key to its count.
func (out *outcomes) check(t *testing.T, e *limiter.Engine) {
	t.Helper()
	for n, o := range out.keys {
		used := usedOf(t, e, n)
		switch {
		case o.admitted > serialLimit:
			t.Errorf("key %d: more than %d admitted: %+v", n, serialLimit, o)
		case used < o.admitted || used > o.admitted+o.unknown:
			t.Errorf("key %d: %d are counted of %+v", n, used, o)
		case o.denied > 0 && used < serialLimit:
			t.Errorf("key %d: somebody was denied though %d of %d are counted: %+v", n, used, serialLimit, o)
		}
	}
	t.Logf("%d keys: %+v", len(out.keys), out.sum())
}

// usedOf returns the count of a key, by a serial read, as soon as there is an
// answer.
func usedOf(t *testing.T, e *limiter.Engine, n int) int64 {
	t.Helper()
	var err error
	for start := time.Now(); time.Since(start) < pausePatience; {
		var d count.Decision
		if d, err = e.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: keyOf(n)}); err == nil {
			return d.Used
		}
	}
	t.Fatal(err)
	return 0
}
