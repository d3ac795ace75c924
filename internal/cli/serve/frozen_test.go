package serve_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

var (
	frozen        = flag.Bool("frozen", false, "TestNodeThatStandsStill: start three nodes, and freeze one of them")
	frozenTime    = flag.Duration("frozen.time", 20*time.Second, "for so long")
	frozenWarm    = flag.Duration("frozen.warm", 3*time.Minute, "how long nodes have to become warm")
	frozenRate    = flag.Int("frozen.rate", 100, "calls a second, of all policies together")
	frozenTimeout = flag.Duration("frozen.timeout", 500*time.Millisecond, "the store timeout")
)

const (
	frozenPolicies = `policies:
  - {name: log, limits: [{algorithm: sliding-log, limit: 1000, window: 1h}]}
  - {name: rows, limits: [{algorithm: fixed-window, limit: 100000, window: 1h}], counting: rows}
  - {name: counters, limits: [{algorithm: fixed-window, limit: 100000, window: 1h}], counting: counters}
  - {name: bucket, limits: [{algorithm: token-bucket, limit: 100000, window: 1h}]}
`
	frozenSteady  = 5 // seconds in which hardly a call fails, before a node is frozen
	frozenCallers = 100
)

var frozenNames = []string{"log", "rows", "counters", "bucket"}

// frozenCalls are those of one policy that began within a second.
type frozenCalls struct {
	calls, undecided int
	took, slowest    time.Duration
}

// frozenLoad is calls at a steady pace, whatever becomes of them.
type frozenLoad struct {
	began time.Time

	mu      sync.Mutex
	seconds map[int]map[string]*frozenCalls
}

func (l *frozenLoad) add(policy string, at time.Time, took time.Duration, status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	second := int(at.Sub(l.began) / time.Second)
	if l.seconds[second] == nil {
		l.seconds[second] = make(map[string]*frozenCalls)
	}
	c := l.seconds[second][policy]
	if c == nil {
		c = new(frozenCalls)
		l.seconds[second][policy] = c
	}
	c.calls++
	c.took += took
	c.slowest = max(c.slowest, took)
	if status != http.StatusOK && status != http.StatusTooManyRequests {
		c.undecided++
	}
}

// sum returns the calls of policies that began in the seconds from first on, before end.
func (l *frozenLoad) sum(first, end int, policies ...string) (sum frozenCalls) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := first; s < end; s++ {
		for _, name := range policies {
			if c := l.seconds[s][name]; c != nil {
				sum.calls += c.calls
				sum.undecided += c.undecided
				sum.took += c.took
				sum.slowest = max(sum.slowest, c.slowest)
			}
		}
	}
	return sum
}

// percent returns how many calls were not decided.
func (c frozenCalls) percent() float64 { return 100 * float64(c.undecided) / float64(max(1, c.calls)) }

func (c frozenCalls) String() string {
	return fmt.Sprintf("%d of %d undecided (%.2f %%), %v on average, %v at most", c.undecided, c.calls, c.percent(),
		(c.took / time.Duration(max(1, c.calls))).Round(time.Millisecond), c.slowest.Round(time.Millisecond))
}

// TestNodeThatStandsStill freezes one of three nodes under load: instances leave it alone by themselves, so that hardly a
// call waits for it.
func TestNodeThatStandsStill(t *testing.T) {
	if !*frozen {
		t.Skip("takes three nodes and minutes: give -frozen")
	}
	cluster := cassandratest.StartCluster(t, &cassandratest.ClusterOptions{Nodes: 3})
	flags := []string{
		"--store=cassandra", "--cassandra-hosts=" + strings.Join(cluster.Hosts(), ","), "--migrate", "--log-level=error",
		"--cassandra-keyspace=" + cassandratest.KeyspaceName(t), "--peer-listen=127.0.0.1:0",
		"--policies=" + clitest.Write(t, "p.yaml", frozenPolicies), "--store-timeout=" + frozenTimeout.String(),
	}
	var all []*process
	for range 3 {
		all = append(all, startProcess(t, flags...))
	}
	for _, p := range all {
		p.awaitMembers(t, 3)
	}
	load := &frozenLoad{began: time.Now(), seconds: make(map[int]map[string]*frozenCalls)}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var calling sync.WaitGroup
	calling.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(*frozenRate))
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			calling.Go(func() {
				at, policy := time.Now(), frozenNames[n%len(frozenNames)]
				status := all[n%3].takeOf(t.Context(), policy, fmt.Sprint("caller-", n/7%frozenCallers))
				load.add(policy, at, time.Since(at), status)
			})
			<-tick.C
		}
	})
	second := 0
	for ; ; second++ {
		<-time.After(time.Until(load.began.Add(time.Duration(second+1) * time.Second)))
		if before := load.sum(second-frozenSteady, second, frozenNames...); second >= frozenSteady && before.percent() < 0.5 {
			t.Logf("in %d seconds before: %v", frozenSteady, before)
			break
		}
		if time.Since(load.began) > *frozenWarm {
			t.Fatalf("nodes are not warm: %v", load.sum(second-frozenSteady, second, frozenNames...))
		}
	}
	cluster.Node(1).Pause()
	<-time.After(*frozenTime)
	cluster.Node(1).Resume()
	<-time.After(frozenSteady * time.Second)
	stop()
	calling.Wait()
	last := second + int(*frozenTime/time.Second)
	for s := second; s < last+frozenSteady; s++ {
		t.Logf("%2d s: logs and rows %v, others %v", s-second, load.sum(s, s+1, frozenNames[:2]...), load.sum(s, s+1, frozenNames[2:]...))
	}
	for _, name := range frozenNames {
		t.Logf("%s: %v", name, load.sum(second+2, last, name))
	}
	for _, p := range all {
		p.end(t, syscall.SIGTERM)
	}
}
