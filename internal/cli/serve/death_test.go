package serve_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

const (
	deathKeys     = 64
	deathCallers  = 8
	deathPause    = 20 * time.Millisecond // of a caller after each call: a load, but not all that this machine can do
	deathPatience = 2 * clitest.Patience  // eight times what a decision may take
)

// TestKeysOfADeadInstanceAreDecided kills one of three instances under load, and holds that those that are left
// decide all keys again. How soon is held by TestADeathIsOverWithinASecond, on a clock that no other load slows.
func TestKeysOfADeadInstanceAreDecided(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	flags := []string{
		"--store=cassandra", "--cassandra-hosts=" + strings.Join(cassandratest.Hosts(t), ","), "--migrate", "--log-level=warn",
		"--store-timeout=5s",
		"--cassandra-keyspace=" + cassandratest.Keyspace(t), "--peer-listen=127.0.0.1:0", "--policies=" + clitest.Write(t, "p.yaml",
			"policies: [{name: log, limits: [{algorithm: sliding-log, limit: 1000, window: 1m}]}]"),
	}
	var all []*process
	for range 3 {
		all = append(all, startProcess(t, flags...))
	}
	for _, p := range all {
		p.awaitMembers(t, 3)
	}
	dead, left := all[0], all[1:]
	var killed atomic.Pointer[time.Time]
	var again [deathKeys]atomic.Int64 // after how many nanoseconds a key was decided again
	var failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range deathCallers {
		callers.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				<-time.After(deathPause)
				at, key := killed.Load(), (n*7)%deathKeys
				status := left[n%2].takeOf(ctx, "log", fmt.Sprint("caller-", key))
				switch decided := status == http.StatusOK || status == http.StatusTooManyRequests; {
				case at == nil || ctx.Err() != nil:
				case decided:
					again[key].CompareAndSwap(0, int64(time.Since(*at)))
				default:
					failed.Add(1)
				}
			}
		})
	}
	<-time.After(2 * time.Second) // of the processes' time
	dead.end(t, syscall.SIGKILL)
	now := time.Now()
	killed.Store(&now)
	took := time.Duration(0)
	for key := range again {
		for again[key].Load() == 0 && time.Since(now) < deathPatience {
			<-time.After(20 * time.Millisecond)
		}
		if again[key].Load() == 0 {
			t.Errorf("key %d is not decided within %v", key, deathPatience)
		}
		took = max(took, time.Duration(again[key].Load()))
	}
	stop()
	callers.Wait()
	t.Logf("all keys were decided again after %v, %d calls failed meanwhile", took, failed.Load())
	for _, p := range left {
		p.awaitMembers(t, 2)
	}
	for _, p := range left {
		p.end(t, syscall.SIGTERM)
	}
}

// takeOf takes a unit, and returns the status; 0: there was no answer.
func (p *process) takeOf(ctx context.Context, policy, identifier string) int {
	body := fmt.Sprintf(`{"policy": %q, "identifier": %q}`, policy, identifier)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/take", strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

var membersLine = regexp.MustCompile(`(?m)^ratelimitd_members(_view_installed)? (\d+)$`)

// awaitMembers waits until p goes by a view of so many members.
func (p *process) awaitMembers(t *testing.T, members int) {
	t.Helper()
	for late := time.Now().Add(clitest.Patience); ; <-time.After(20 * time.Millisecond) {
		found := membersLine.FindAllStringSubmatch(p.metrics(t), -1)
		is := make(map[string]string)
		for _, m := range found {
			is[m[1]] = m[2]
		}
		if is[""] == strconv.Itoa(members) && is["_view_installed"] == "1" {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%v, want %d members in a view that is in force", is, members)
		}
	}
}
