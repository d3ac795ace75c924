package cassandra_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Rows that are counted ahead count for others, live until they count no more by any clock, and
// are removed when their process ends, but for those that it handed out. A reset forgets them,
// though they are dated after it.
func TestRowsAhead(t *testing.T) {
	config := newConfig(t)
	store := newStore(t, config)
	policy := limiter.Policy{Name: "p", Leases: limiter.LeasesStanding, Limits: []limiter.Limit{
		{Algorithm: "sliding-log", Limit: 10, Window: time.Hour},
	}}
	options := limiter.Options{StoreTimeout: 5 * time.Second, Feed: store}
	e, other := limiter.New(store, &options), limiter.New(store, &options)
	for _, engine := range []*limiter.Engine{e, other} {
		if err := engine.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	take := func(id limiter.Identifier) limiter.Decision {
		d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: id})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	used := func(id limiter.Identifier) int64 {
		d, err := other.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: id})
		if err != nil {
			t.Fatal(err)
		}
		return d.Used
	}
	tries := 0
	eventually(t, "it has an allowance", func() bool {
		tries++
		return take(limiter.Identifier("first " + string(rune('0'+tries)))).Leased
	})
	takes := map[limiter.Identifier]int{"is used up": 6, "is left": 3, "is reset": 4}
	for id, n := range takes {
		for i := range n {
			if d := take(id); d.Leased != (i != 2) || d.Used != int64(i+1) {
				t.Errorf("take %d of what %s: %+v", i+1, id, d)
			}
		}
		if n := used(id); n != 4 {
			t.Errorf("of what %s %d are used elsewhere, want a row and three ahead", id, n)
		}
	}
	session := cassandratest.Session(t, config.Hosts...)
	rows := session.Query("SELECT TTL(cost) FROM " + config.Keyspace + ".events_hour").Iter()
	for ttl, least := 0, int((time.Hour + 30*time.Second).Seconds()); rows.Scan(&ttl); {
		if ttl < least {
			t.Errorf("a row lives for %d s, want %d", ttl, least)
		}
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Reset(t.Context(), "p", "is reset"); err != nil {
		t.Fatal(err)
	}
	if n := used("is reset"); n != 0 {
		t.Errorf("%d are used after a reset", n)
	}
	stop()
	<-ended
	for id, n := range map[limiter.Identifier]int64{"is used up": 4, "is left": 1, "is reset": 0} {
		if now := used(id); now != n {
			t.Errorf("of what %s %d are used once its process has ended, want %d", id, now, n)
		}
	}
}
