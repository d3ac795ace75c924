package cassandra_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// TestLocalLevelsStayInTheirDatacenter ends the only node of the local data centre:
// the other's quorum must not answer in its place, for the counts are the local
// one's.
func TestLocalLevelsStayInTheirDatacenter(t *testing.T) {
	cluster := cassandratest.StartCluster(t, &cassandratest.ClusterOptions{Datacenters: []string{"dc1", "dc2"}})
	config := cassandra.Config{
		Hosts: cluster.Hosts(), Keyspace: cassandratest.KeyspaceName(t), Timeout: 5 * time.Second, UsesLocalLevels: true,
	}
	if err := cassandra.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := cassandra.Open(t.Context(), config); err == nil || !strings.Contains(err.Error(), "dc1, dc2") {
		t.Errorf("two data centres, and none is said to be local: %v", err)
	}
	config.Datacenter = "dc1"
	store, err := cassandra.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	policy := limiter.Policy{Name: "local", Limits: []limiter.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}}
	anywhere := policy
	anywhere.Name, anywhere.Consistency = "anywhere", limiter.Consistency{Write: limiter.LevelOne, Read: limiter.LevelOne}
	serial := policy
	serial.Name, serial.Guarantee = "serial", limiter.GuaranteeSerial
	opts := limiter.Options{Datacenter: store.Datacenter(), StoreTimeout: 5 * time.Second, Now: time.Now}
	e := storetest.NewEngine(t, store, opts, policy, anywhere, serial)
	for _, name := range []string{"local", "serial"} {
		if d := e.Do(t, limiter.OpTake, name); !d.Allowed {
			t.Errorf("%s: %+v", name, d.Verdict)
		}
	}
	cluster.Node(0).Kill()
	if d, err := e.Take(t.Context(), limiter.Demand{Policy: "local", Identifier: "x"}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("allowed %v, %v: the other data centre answered", d.Allowed, err)
	}
	if d, err := e.Check(t.Context(), limiter.Demand{Policy: "serial", Identifier: "x"}); !errors.Is(err, limiter.ErrUnavailable) {
		t.Errorf("allowed %v, %v: the other data centre answered at LOCAL_SERIAL", d.Allowed, err)
	}
	if d := e.Do(t, limiter.OpTake, "anywhere"); !d.Allowed {
		t.Errorf("at ONE, which any node may answer: %+v", d.Verdict)
	}
}
