package cassandra_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestEarlierRows counts what earlier builds wrote: the rows are written here as they wrote them, column by column, and
// not by this build's Store. A change of how a row is written leaves these as they are, and still reads them.
func TestEarlierRows(t *testing.T) {
	config := newConfig(t)
	s := newStore(t, config)
	session := cassandratest.Session(t, config.Hosts...)
	now := store.InstantOf(time.Now())
	id := func(at store.Instant) gocql.UUID { return gocql.UUID(store.NewEventIDs().Next(at)) }
	insert := func(statement string, args ...any) {
		t.Helper()
		if err := session.Query(statement, args...).Exec(); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	const window = 24 * time.Hour
	key := func(policyName string, space keys.KeySpace) []byte {
		space.Policy, space.Guarantee = policyName, policy.GuaranteeCounted
		return (&keys.Keyer{Namespace: "prod"}).For(space).Of("a").Bytes()
	}
	in := " " + config.Keyspace + "."

	log := key("log", keys.KeySpace{})
	insert("INSERT INTO"+in+"events_day (key, event_id, cost) VALUES (?, ?, 2) USING TTL 90000", log, id(now-1000))
	insert("INSERT INTO"+in+"events_day (key, event_id, cost, ends_at) VALUES (?, ?, 3, ?) USING TTL 90000",
		log, id(now-900), int64(now.Add(time.Hour)))
	insert("INSERT INTO"+in+"events_day (key, event_id, cost) VALUES (?, ?, 50) USING TTL 90000", log, id(now-5000))
	insert("UPDATE"+in+"events_day USING TTL 90000 SET reset_at = ? WHERE key = ?", int64(now-4000), log)

	start := now.Floor(window)
	const limitID = "fixed-window-1d/fixed-window/86400000"
	expires := int64(start.Add(2 * window))
	counters := key("counters", keys.KeySpace{})
	insert("UPDATE"+in+"counters SET units = units + 4 WHERE key = ? AND expires_at = ? AND limit_id = ? AND window_start = ? AND epoch = ?",
		counters, expires, limitID, int64(start), int64(now-4000))
	insert("UPDATE"+in+"counters SET units = units + 50 WHERE key = ? AND expires_at = ? AND limit_id = ? AND window_start = ? AND epoch = 0",
		counters, expires, limitID, int64(start))
	insert("UPDATE"+in+"counters SET units = units + 1 WHERE key = ? AND expires_at = ? AND limit_id = '' AND window_start = 0 AND epoch = ?",
		counters, expires, int64(now-4000))

	rows := key("rows", keys.KeySpace{})
	for _, units := range []int64{2, 3} { // of two writers
		insert("INSERT INTO"+in+"tallies_day (key, expires_at, limit_id, window_start, epoch, writer, units) "+
			"VALUES (?, ?, ?, ?, 0, ?, ?) USING TTL 180000",
			rows, expires, limitID, int64(start), id(now), units)
	}

	cell := []byte{1} // its format
	cell = append(binary.AppendVarint(cell, int64(now)), 1, 1)
	version := id(now)
	cell = append(append(cell, version[:]...), 0, 1) // no reset, and one level
	const bucketID = "token-bucket-1d/token-bucket/86400000"
	cell = append(append(cell, byte(len(bucketID))), bucketID...)
	cell = binary.AppendVarint(cell, int64(now))
	cell = binary.AppendUvarint(append(cell, 0), uint64(6*window.Milliseconds())) // six units, by the window in milliseconds
	cell = append(cell, 0)
	insert("UPDATE"+in+"cells USING TTL 180000 SET version = ?, value = ?, cost = 0 "+
		"WHERE key = ? AND event_id = ffffffff-ffff-1fff-bf7f-7f7f7f7f7f7f",
		version, cell, key("bucket", keys.KeySpace{SerialLevel: "LOCAL_SERIAL"}))

	hour := int64(now.Floor(time.Hour))
	insert("INSERT INTO"+in+"changes (bucket, id, kind, key, until, strikes, details) VALUES (?, ?, 'override', ?, ?, 0, ?) USING TTL 3600",
		hour, id(now), log, int64(now.Add(time.Hour)), `{"policy":"log","kind":"limits","limits":[{"name":"sliding-log-1d","limit":77}]}`)

	limit := func(algorithm string) []policy.Limit {
		return []policy.Limit{{Algorithm: algorithm, Limit: 100, Window: window}}
	}
	e := limiter.New(s, &limiter.Options{Keyer: keys.Keyer{Namespace: "prod"}, Feed: s, StoreTimeout: 10 * time.Second, Now: now.Time})
	err := e.SetPolicies([]policy.Policy{
		{Name: "log", Limits: limit("sliding-log")},
		{Name: "counters", Counting: policy.CountingCounters, Limits: limit("fixed-window")},
		{Name: "rows", Counting: policy.CountingRows, Limits: limit("fixed-window")},
		{Name: "bucket", Limits: limit("token-bucket")},
	})
	if err == nil {
		err = e.CatchUp(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"log": 2 + 3, "counters": 4, "rows": 2 + 3, "bucket": 6} {
		d, err := e.Check(t.Context(), limiter.Demand{Policy: name, Identifier: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if used := d.Limits()[0].Used; used != want {
			t.Errorf("%s: used %d, and by the build that wrote the rows %d", name, used, want)
		}
		if name == "log" && d.Limits()[0].Limit.Limit != 77 {
			t.Errorf("the override of an earlier build is not in force: %+v", d.Limits()[0].Limit)
		}
	}
}
