//go:build unix

package serve_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/watchdog"
)

// stoodFor is longer than others wait for a member that is silent.
var stoodFor = flag.Duration("stood.for", 10*time.Second, "TestInstanceThatIsStoppedUnderLoad: how long the instance stands still")

const (
	stoodLimit   = 3
	stoodEvery   = 10 * time.Millisecond // comes a new key
	stoodRecent  = 300                   // keys that callers of the others ask for: so each is asked for some three seconds
	stoodCallers = 8                     // of each instance
	stoodPause   = 20 * time.Millisecond // of each after a call
	stoodPending = 200                   // calls that the instance has before it when it goes on
)

// TestInstanceThatIsStoppedUnderLoad stops one of three instances for a while under load, and lets it go on. The others decide its
// keys meanwhile. It admits nothing by what it knew: no key has more than its limit over all three. It joins anew.
func TestInstanceThatIsStoppedUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	flags := []string{
		"--store=cassandra", "--cassandra-hosts=" + strings.Join(cassandratest.Hosts(t), ","), "--migrate", "--log-level=error",
		"--store-timeout=2s", // callers pause and wait, as what is counted matters here, not how many are
		"--cassandra-keyspace=" + cassandratest.Keyspace(t), "--peer-listen=127.0.0.1:0", "--policies=" + clitest.Write(t, "p.yaml",
			"policies: [{name: log, limits: [{algorithm: sliding-log, limit: "+strconv.Itoa(stoodLimit)+", window: 1h}]}]"),
	}
	var all []*process
	for range 3 {
		all = append(all, startProcess(t, flags...))
	}
	for _, p := range all {
		p.awaitMembers(t, 3)
	}
	load := &stoodLoad{began: time.Now(), admitted: make(map[int]int)}
	ctx, end := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	defer func() { end(); calling.Wait() }()
	for i, p := range all {
		for range stoodCallers {
			calling.Go(func() {
				for ; ctx.Err() == nil; <-time.After(stoodPause) {
					reach := stoodRecent
					if i == 0 { // its own keys were filled by others meanwhile
						reach += int(stoodFor.Nanoseconds() / stoodEvery.Nanoseconds())
					}
					load.take(ctx, p, load.draw(reach))
				}
			})
		}
	}
	<-time.After(2 * time.Second) // of the processes' time
	still, left := all[0], all[1:]
	dog, err := watchdog.Over(still.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	still.signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	pending := make(chan int, stoodPending) // what became of calls that it has before it
	for range stoodPending {
		calling.Go(func() { pending <- load.take(ctx, still, load.draw(stoodRecent)) })
	}
	took := load.decidedAgain(ctx, t, left)
	<-time.After(time.Until(stopped.Add(*stoodFor)))
	still.signal(t, syscall.SIGCONT)
	went := time.Now()
	if err := dog.StandDown(); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		p.awaitMembers(t, 3)
	}
	still.awaitDecided(ctx, t, load)
	joined := time.Since(went)
	<-time.After(2 * time.Second) // of the processes' time
	end()
	calling.Wait()
	if text := still.metrics(t); !strings.Contains(text, "\nratelimitd_members_set_out_total{reason=\"silent\"} 1\n") {
		t.Error("the instance that stood still was not set out once")
	}
	statuses := make(map[int]int)
	for range stoodPending {
		statuses[<-pending]++
	}
	full := load.check(t)
	t.Logf("all keys were decided again after %v; it decided again %v after it went on; calls that waited for it, by status: %v; "+
		"%d keys are full", took, joined, statuses, full)
	for _, p := range all {
		p.end(t, syscall.SIGTERM)
	}
}

// stoodLoad is calls for keys that come one after the other.
type stoodLoad struct {
	began time.Time

	mu       sync.Mutex
	admitted map[int]int // by key
}

// draw returns one of the latest keys, so many at most.
func (l *stoodLoad) draw(reach int) int {
	return int(time.Since(l.began)/stoodEvery) - rand.IntN(reach)
}

// take takes a unit of key, and returns the status. A call that has no answer when ctx ends is not counted.
func (l *stoodLoad) take(ctx context.Context, p *process, key int) (status int) {
	status = p.takeOf(ctx, "log", fmt.Sprint("caller ", key))
	if status == http.StatusOK {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.admitted[key]++
	}
	return status
}

// decidedAgain asks the instances that are left for keys of all owners, each until it is decided, and returns how long that
// took.
func (l *stoodLoad) decidedAgain(ctx context.Context, t *testing.T, left []*process) time.Duration {
	t.Helper()
	began := time.Now()
	var asking sync.WaitGroup
	for key := range deathKeys {
		asking.Go(func() {
			for status := 0; status != http.StatusOK && status != http.StatusTooManyRequests; {
				status = l.take(ctx, left[key%2], -1-stoodRecent-key)
				if time.Since(began) > deathPatience {
					t.Errorf("a key is not decided within %v: %d", deathPatience, status)
					return
				}
			}
		})
	}
	asking.Wait()
	return time.Since(began)
}

// check holds that no key has more than its limit, and returns how many have all of it.
func (l *stoodLoad) check(t *testing.T) (full int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, admitted := range l.admitted {
		if admitted > stoodLimit {
			t.Errorf("key %d: %d were admitted, of %d", key, admitted, stoodLimit)
		}
		if admitted == stoodLimit {
			full++
		}
	}
	if full == 0 {
		t.Error("no key is full")
	}
	return full
}

// awaitDecided waits until p decides again.
func (p *process) awaitDecided(ctx context.Context, t *testing.T, l *stoodLoad) {
	t.Helper()
	for late := time.Now().Add(clitest.Patience); ; <-time.After(20 * time.Millisecond) {
		switch status := l.take(ctx, p, l.draw(stoodRecent)); {
		case status == http.StatusOK || status == http.StatusTooManyRequests:
			return
		case time.Now().After(late):
			t.Fatalf("status %d after %v", status, clitest.Patience)
		}
	}
}

// signal sends s.
func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
