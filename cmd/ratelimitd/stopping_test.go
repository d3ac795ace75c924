package main

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// countedAhead are policies of which an instance counts units before they are asked for.
const countedAhead = `policies:
  - {name: counters, limits: [{algorithm: fixed-window, limit: 2000, window: 31d}]}
  - {name: rows, counting: rows, limits: [{algorithm: fixed-window, limit: 2000, window: 31d}]}
  - {name: tail, counting: rows, leases: early, limits: [{algorithm: sliding-tail, limit: 2000, window: 31d}]}
  - {name: standing, counting: rows, leases: standing, limits: [{algorithm: sliding-tail, limit: 2000, window: 31d}]}
  - {name: log, leases: standing, limits: [{algorithm: sliding-log, limit: 64, window: 31d}]}
  - {name: memory, guarantee: local, limits: [{algorithm: token-bucket, limit: 2000, window: 31d}]}
`

// A process that is stopped gives back what it counted ahead, also where subtractions from
// counters have to wait for long: another one finds what was taken.
func TestStoppingGivesBackWhatWasCountedAhead(t *testing.T) {
	flags := []string{
		"--store-timeout=3s", "--store=cassandra", "--cassandra-hosts=" + strings.Join(cassandratest.Hosts(t), ","), "--migrate",
		"--cassandra-keyspace=" + cassandratest.Keyspace(t), "--policies=" + writeFile(t, "p.yaml", countedAhead),
	}
	const takes, inTurn = 300, 20
	p := startProcess(t, flags...)
	policies := map[string]int64{"counters": takes, "rows": takes, "tail": takes, "standing": takes, "log": inTurn, "memory": takes}
	for policy, n := range policies {
		var callers sync.WaitGroup
		for range inTurn {
			callers.Go(func() {
				for range n / inTurn {
					p.used(t, "take", policy)
				}
			})
		}
		callers.Wait()
	}
	p.end(t, syscall.SIGTERM)
	p = startProcess(t, flags...)
	again, late := time.NewTicker(50*time.Millisecond), time.After(patience)
	defer again.Stop()
	for policy, want := range policies {
		got := p.used(t, "check", policy)
		for policy == "memory" && got == 0 { // the first check has it read
			select {
			case <-again.C:
				got = p.used(t, "check", policy)
			case <-late:
				t.Fatal("nothing is read")
			}
		}
		if got != want {
			t.Errorf("%s: %d used after %d takes", policy, got, want)
		}
	}
	p.end(t, syscall.SIGTERM)
}
