package cassandra_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	minorityTimeout  = 5 * time.Second
	minorityPace     = 150 * time.Millisecond // between two takes of an instance under a policy: a node has to start beside them
	minorityTakes    = 3 * serialLimit        // from each key
	minorityAdmitted = 2 * serialLimit        // under each policy, before anything else happens
)

// minorityPolicies are in force while a node is dead.
func minorityPolicies() (policies []policy.Policy) {
	for _, algorithm := range []string{"sliding-log", "fixed-window", "sliding-tail", "token-bucket"} {
		policies = append(policies, policy.Policy{
			Name: algorithm, Limits: []policy.Limit{{Algorithm: algorithm, Limit: serialLimit, Window: policy.MaxWindow}},
		})
	}
	return policies
}

// testDeadMinority kills one of three nodes, and starts it again, while instances take
// from the same keys at QUORUM and SERIAL.
func testDeadMinority(t *testing.T, cluster *cassandratest.Cluster, stores []*cassandra.Store) {
	policies := minorityPolicies()
	var engines []*limiter.Engine
	for _, store := range stores {
		e := limiter.New(store, &limiter.Options{
			Keyer: keys.Keyer{Namespace: t.Name()}, StoreTimeout: minorityTimeout, Serial: policy.LevelSerial,
			Consistency: policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum},
		})
		if err := e.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		engines = append(engines, e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all := make([]minorityOutcomes, len(policies))
	for i := range all {
		all[i].policy = policies[i].Name
		defer all[i].takeUntil(ctx, t, engines)()
	}
	goOn := func(when string) {
		t.Helper()
		for i := range all {
			all[i].waitAdmitted(t, when)
		}
	}
	goOn("with all nodes up")
	cluster.Node(1).Kill()
	goOn("with one of three nodes dead")
	cluster.Node(1).Start()
	goOn("with the node back")
	cluster.WaitUp()
	cancel()
	for i := range all {
		all[i].takers.Wait()
		all[i].check(t, engines)
	}
}

// testFrozenNode freezes one of three nodes: what it would have been asked to write is
// asked of another in time, alone and together.
func testFrozenNode(t *testing.T, cluster *cassandratest.Cluster, s *cassandra.Store) {
	ids := store.NewEventIDs().Next
	keyer := keys.Keyer{Namespace: t.Name()}
	keys := keyer.For(keys.KeySpace{Policy: "p"})
	write := func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), minorityTimeout)
		defer cancel()
		now := store.InstantOf(time.Now())
		return s.Write(ctx, &store.Write{
			Key: keys.Of(keyOf(n)), Level: policy.LevelQuorum, Logs: []store.LogWrite{{TTL: time.Hour}},
			Events: []store.Event{{ID: ids(now), At: now, Cost: 1}},
		})
	}
	writeEach := func(first int) {
		const many = 40
		var all sync.WaitGroup
		for n := first; n < first+many; n++ {
			all.Go(func() {
				if err := write(n); err != nil {
					t.Errorf("key %d: %v", n, err)
				}
			})
		}
		all.Wait()
	}
	writeEach(0) // the driver asks any node what statements mean, when it first meets them
	cluster.Node(1).Pause()
	defer cluster.Node(1).Resume()
	writeEach(1000)
}

// minorityOutcomes are those of one policy.
type minorityOutcomes struct {
	outcomes
	policy string
	takes  atomic.Int64
	takers sync.WaitGroup
}

// takeUntil has all engines take from the same key until that had takes enough, and from the
// next one then, until ctx ends. The function that it returns waits for them.
func (out *minorityOutcomes) takeUntil(ctx context.Context, t *testing.T, engines []*limiter.Engine) (wait func()) {
	for _, e := range engines {
		out.takers.Go(func() {
			tick := time.NewTicker(minorityPace)
			defer tick.Stop()
			for ctx.Err() == nil {
				n := int(out.takes.Add(1)-1) / minorityTakes
				d, err := e.Take(t.Context(), limiter.Demand{Policy: out.policy, Identifier: keyOf(n)})
				out.add(t, n, &d, err)
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
		})
	}
	return out.takers.Wait
}

// waitAdmitted returns when some more takes than now are admitted.
func (out *minorityOutcomes) waitAdmitted(t *testing.T, when string) {
	t.Helper()
	tick := time.NewTicker(minorityPace)
	defer tick.Stop()
	before := out.sum()
	for start := time.Now(); time.Since(start) < pausePatience; <-tick.C {
		if now := out.sum(); now.admitted >= before.admitted+minorityAdmitted {
			return
		}
	}
	t.Fatalf("%s: only from %+v to %+v in %v %s", out.policy, before, out.sum(), pausePatience, when)
}

// check compares the answers for each key to its count: no more than
// the limit was admitted, and whatever was is remembered.
func (out *minorityOutcomes) check(t *testing.T, engines []*limiter.Engine) {
	t.Helper()
	for n, o := range out.keys {
		used := out.usedOf(t, engines[n%len(engines)], n)
		if o.admitted > serialLimit {
			t.Errorf("%s, key %d: more than %d admitted: %+v", out.policy, n, serialLimit, o)
		}
		if used < o.admitted {
			t.Errorf("%s, key %d: only %d are counted of %+v", out.policy, n, used, o)
		}
	}
	sum := out.sum()
	if sum.unknown+sum.failed > sum.admitted+sum.denied {
		t.Errorf("%s: most takes had no answer: %+v", out.policy, sum)
	}
	t.Logf("%s: %d keys: %+v", out.policy, len(out.keys), sum)
}

// usedOf returns the count of a key as soon as there is an answer.
func (out *minorityOutcomes) usedOf(t *testing.T, e *limiter.Engine, n int) int64 {
	t.Helper()
	var d count.Decision
	_, err := persist(func() (err error) {
		d, err = e.Check(t.Context(), limiter.Demand{Policy: out.policy, Identifier: keyOf(n)})
		return err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", out.policy, err))
	}
	return d.Used
}
