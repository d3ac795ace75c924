package serve_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// keptApart are policies whose units are kept in different ways.
const keptApart = `policies:
  - {name: counters, counting: counters, limits: [{algorithm: fixed-window, limit: 2000, window: 31d}]}
  - {name: rows, counting: rows, limits: [{algorithm: fixed-window, limit: 2000, window: 31d}]}
  - {name: log, limits: [{algorithm: sliding-log, limit: 64, window: 31d}]}
  - {name: memory, guarantee: local, limits: [{algorithm: token-bucket, limit: 2000, window: 31d}]}
`

// A process that is stopped gives back what was refunded before, also where subtractions from
// counters have to wait for long, and writes what it counted in memory: another one finds what
// was taken.
func TestStoppingGivesBackWhatWasRefunded(t *testing.T) {
	flags := onCassandra(t, "--store-timeout=3s", "--policies="+clitest.Write(t, "p.yaml", keptApart))
	const takes, inTurn, refunds = 300, 20, 5
	p := startReady(t, flags...)
	policies := map[string]int64{"counters": takes, "rows": takes, "log": inTurn, "memory": takes}
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
	for policy := range policies {
		for range refunds {
			p.post(t, "refund", `{"receipt":"`+p.post(t, "take", clitest.TakeBody(policy)).Receipt+`"}`)
		}
	}
	p.end(t, syscall.SIGTERM)
	p = startReady(t, flags...)
	again, late := time.NewTicker(50*time.Millisecond), time.After(clitest.Patience)
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
