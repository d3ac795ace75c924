package cassandra_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// testLocalNodeDies ends the only node of the local data centre: the other's quorum must
// not answer in its place, for the counts are the local one's. The node stays dead.
func (r *regions) testLocalNodeDies(t *testing.T) {
	const timeout = 5 * time.Second
	config := r.config
	config.Datacenter, config.UsesLocalLevels, config.Timeout = "dc1", true, timeout
	s := openStore(t, config)
	p := policy.Policy{Name: "local", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}}
	anywhere := p
	anywhere.Name, anywhere.Consistency = "anywhere", policy.Consistency{Write: policy.LevelOne, Read: policy.LevelOne}
	bucket := policy.Policy{Name: "bucket", Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 10, Window: time.Hour}}}
	opts := limiter.Options{Datacenter: s.Datacenter(), StoreTimeout: timeout, Now: time.Now}
	e := storetest.NewEngine(t, s, opts, p, anywhere, bucket)
	for _, name := range []string{"local", "bucket"} {
		if d := e.Do(t, count.OpTake, name); !d.Allowed {
			t.Errorf("%s: %+v", name, d.Verdict)
		}
	}
	r.cluster.Node(0).Kill()
	if d, err := e.Take(t.Context(), limiter.Demand{Policy: "local", Identifier: "x"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("allowed %v, %v: the other data centre answered", d.Allowed, err)
	}
	if d, err := e.Check(t.Context(), limiter.Demand{Policy: "bucket", Identifier: "x"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("allowed %v, %v: the other data centre answered at LOCAL_SERIAL", d.Allowed, err)
	}
	if d := e.Do(t, count.OpTake, "anywhere"); !d.Allowed {
		t.Errorf("at ONE, which any node may answer: %+v", d.Verdict)
	}
}
