package cassandra_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

const (
	stalledFor   = 30 * time.Second
	stalledEvery = time.Second
	stalledPart  = 650 * time.Millisecond // of it: more than a store timeout
	stalledKeys  = 20
	stalledLimit = 10
	stalledTakes = stalledLimit + 2 // from each key
)

// stalledPolicy has a bucket in which nothing drains while a test lasts.
func stalledPolicy() policy.Policy {
	return policy.Policy{
		Name: "p", Guarantee: policy.GuaranteeLocal,
		Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: stalledLimit, Window: policy.MaxWindow}},
	}
}

// testStalledMajority freezes two of three nodes for most of each second while one instance fills
// buckets: conditional writes without an answer are stored later. In the end two instances tell of each
// bucket what was admitted, once.
func testStalledMajority(t *testing.T, cluster *cassandratest.Cluster, stores []*cassandra.Store) {
	fills, looks := stalledInstance(t, stores[0]), stalledInstance(t, stores[1])
	var out outcomes
	ctx, cancel := context.WithTimeout(t.Context(), stalledFor)
	defer cancel()
	var taking sync.WaitGroup
	taking.Go(func() {
		tick := time.NewTicker(stalledFor / (stalledTakes + 1)) // at another moment of a stall each
		defer tick.Stop()
		for range stalledTakes {
			for n := range stalledKeys {
				d, err := fills.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: keyOf(n)})
				out.add(t, n, &d, err)
			}
			<-tick.C
		}
	})
	stallMajority(ctx, t, cluster)
	taking.Wait()
	cluster.WaitUp()
	if sum := out.sum(); sum.admitted == 0 || sum.denied == 0 {
		t.Errorf("nothing was tried: %+v", sum)
	}
	for n, o := range out.keys {
		for _, e := range []*limiter.Engine{fills, looks} {
			checkStalled(t, e, n, o)
		}
	}
	t.Logf("%d keys: %+v, %d syncs failed", len(out.keys), out.sum(), fills.Behind().Failed)
}

// stalledInstance returns an instance that runs until the test ends.
func stalledInstance(t *testing.T, store *cassandra.Store) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{Keyer: keys.Keyer{Namespace: t.Name()}, Local: embedded.New(nil)})
	if err := e.SetPolicies([]policy.Policy{stalledPolicy()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return e
}

// stallMajority has two nodes stand still for a part of each second until ctx ends.
func stallMajority(ctx context.Context, t *testing.T, cluster *cassandratest.Cluster) {
	t.Helper()
	tick, thaw := time.NewTicker(stalledEvery), time.NewTimer(0)
	defer tick.Stop()
	<-thaw.C
	for ctx.Err() == nil {
		cluster.Node(1).Pause()
		cluster.Node(2).Pause()
		thaw.Reset(stalledPart)
		<-thaw.C
		cluster.Node(1).Resume()
		cluster.Node(2).Resume()
		<-tick.C
	}
}

// checkStalled holds what e tells of a key, as soon as it knows of all that was admitted, to o.
func checkStalled(t *testing.T, e *limiter.Engine, n int, o keyOutcome) {
	t.Helper()
	demand := limiter.Demand{Policy: "p", Identifier: keyOf(n)}
	var d count.Decision
	eventually(t, "what was admitted is known", func() bool {
		var err error
		d, err = e.Check(t.Context(), demand)
		return err == nil && d.Used >= o.admitted
	})
	if d.Used > min(stalledLimit, o.admitted+o.unknown) {
		t.Errorf("key %d: %d used of %d, of %+v", n, d.Used, stalledLimit, o)
	}
	if o.denied > 0 && d.Used < stalledLimit {
		t.Errorf("key %d: somebody was denied though %d of %d are used: %+v", n, d.Used, stalledLimit, o)
	}
	wait := policy.MaxWindow / stalledLimit
	if d.Used == stalledLimit && (d.Allowed || d.RetryAfter > wait || d.RetryAfter < wait-time.Hour) {
		t.Errorf("key %d: allowed %t, retry after %v, want a denial for %v and no more", n, d.Allowed, d.RetryAfter, wait)
	}
}
