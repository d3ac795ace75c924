package cassandra_test

import (
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// BenchmarkPartitions writes rows of new keys in trips of several rows, each trip followed by one read of a row, as an
// owner does it: each key a partition of its own, as it is, or all keys of a slice of the ring in one. An operation is a row.
func BenchmarkPartitions(b *testing.B) {
	for _, layout := range []struct{ name, primary string }{
		{"key", "(key, event_id)"},
		{"slice", "(slice, key, event_id)"},
	} {
		for _, rows := range []int{1, 10, 20, 40} {
			b.Run(fmt.Sprintf("%s/%d", layout.name, rows), func(b *testing.B) {
				hosts := cassandratest.Hosts(b)
				session, keyspace := cassandratest.Session(b, hosts...), cassandratest.Keyspace(b)
				table := keyspace + ".by_" + layout.name
				for _, statement := range []string{
					"CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
					"CREATE TABLE " + table + " (slice int, key blob, event_id timeuuid, cost bigint, PRIMARY KEY " + layout.primary + ")",
				} {
					if err := session.Query(statement).Exec(); err != nil {
						b.Fatal(err)
					}
				}
				tripsOf(b, session, table, rows)
			})
		}
	}
}

// tripsOf writes b.N rows to table in trips of so many, eight trips at a time for each processor.
func tripsOf(b *testing.B, session *gocql.Session, table string, rows int) {
	insert := "INSERT INTO " + table + " (slice, key, event_id, cost) VALUES (?, ?, ?, 1) USING TTL 3600"
	var trip atomic.Int64
	b.SetParallelism(4)
	b.ResetTimer()
	defer measureCPU(b)()
	b.RunParallel(func(p *testing.PB) {
		for more := p.Next(); more; {
			batch := session.NewBatch(gocql.UnloggedBatch)
			batch.SetConsistency(gocql.LocalQuorum)
			slice := int(trip.Add(1) % 64)
			for n := 0; more && n < rows; n++ {
				key := make([]byte, 32)
				_, _ = rand.Read(key)
				batch.Query(insert, slice, key, gocql.UUIDFromTime(time.Now()))
				more = p.Next()
			}
			err := session.ExecuteBatch(batch)
			if err == nil {
				err = session.Query("SELECT release_version FROM system.local WHERE key = 'local'").Exec()
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}
