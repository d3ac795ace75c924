package cassandra_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/breaker"
	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

const (
	outageTimeout = 500 * time.Millisecond
	// answerSlack is how much longer than the store timeout an answer may take on a busy machine: less than a second
	// timeout.
	answerSlack = outageTimeout * 4 / 5
	// recoveryTime is how soon all is well after the cluster is back.
	recoveryTime = 20 * time.Second
)

// TestStoreThatIsPausedStoppedAndBack freezes and ends the only node while requests go on. An instance that begins while the
// node is dead decides, too, and counts in the store once that has started.
func TestStoreThatIsPausedStoppedAndBack(t *testing.T) {
	t.Parallel()
	cluster := cassandratest.StartCluster(t, nil)
	config := cassandra.Config{Hosts: cluster.Hosts(), Keyspace: cassandratest.KeyspaceName(t), Timeout: outageTimeout}
	e, node := outageEngine(t, newStore(t, config)), cluster.Node(0)
	waitServed(t, e)

	t.Run("paused", func(t *testing.T) {
		node.Pause()
		answerAsPoliciesSay(t, e)
		node.Resume()
		waitServed(t, e)
	})
	node.Kill()
	t.Run("killed", func(t *testing.T) { answerAsPoliciesSay(t, e) })
	late := openLater(t, config)
	begun := outageEngine(t, late)
	late.OnMove(begun.MoveTo)
	runWhile(t, late)
	t.Run("begun before the node", func(t *testing.T) { answerAsPoliciesSay(t, begun) })
	node.Start()
	for name, e := range map[string]storetest.Engine{"back": e, "begun before the node, and back": begun} {
		t.Run(name, func(t *testing.T) { waitServed(t, e) })
	}
}

func outageEngine(t *testing.T, store store.Store) storetest.Engine {
	var policies []policy.Policy
	for _, on := range []policy.OnStoreError{policy.OnStoreErrorDeny, policy.OnStoreErrorAllow, policy.OnStoreErrorLocal} {
		policies = append(policies, policy.Policy{
			Name: string(on), OnStoreError: on,
			Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 2, Window: time.Hour}},
		})
	}
	return storetest.NewEngine(t, breaker.New(store, nil), limiter.Options{
		StoreTimeout: outageTimeout, Now: time.Now, Local: embedded.New(nil),
	}, policies...)
}

// answerAsPoliciesSay makes requests, each within its deadline, while the store is
// away.
func answerAsPoliciesSay(t *testing.T, e storetest.Engine) {
	t.Helper()
	for i := range 12 {
		id := keys.Identifier(fmt.Sprintf("%s %d", t.Name(), i/4)) // four for each: two more than the limit
		for _, p := range e.Policies() {
			start := time.Now()
			d, err := e.Take(context.Background(), limiter.Demand{Policy: p.Name, Identifier: id})
			if took := time.Since(start); took > outageTimeout+answerSlack {
				t.Errorf("request %d under %q took %v", i, p.Name, took)
			}
			switch p.OnStoreError {
			case policy.OnStoreErrorDeny:
				if !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("request %d: allowed %v, %v, want no answer", i, d.Allowed, err)
				}
			case policy.OnStoreErrorAllow:
				if err != nil || !d.Allowed || !d.Degraded {
					t.Errorf("request %d: allowed %v, degraded %v, %v", i, d.Allowed, d.Degraded, err)
				}
			case policy.OnStoreErrorLocal:
				if err != nil || d.Allowed != (i%4 < 2) || !d.Degraded {
					t.Errorf("request %d: allowed %v, degraded %v, %v", i, d.Allowed, d.Degraded, err)
				}
			}
		}
	}
}

// waitServed returns when every policy is decided by the store again.
func waitServed(t *testing.T, e storetest.Engine) {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; time.Since(start) < recoveryTime; i++ {
		<-tick.C
		d, err := e.Take(context.Background(), limiter.Demand{Policy: "deny", Identifier: keys.Identifier(fmt.Sprint(t.Name(), i))})
		if err == nil && d.Allowed && !d.Degraded {
			t.Logf("served %v after the store was back", time.Since(start).Round(time.Millisecond))
			return
		}
	}
	t.Fatalf("not served %v after the store was back", recoveryTime)
}
