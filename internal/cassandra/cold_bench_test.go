package cassandra_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// BenchmarkColdSlots takes of new callers, over the instances in turn, from the moment on at which all slots have an
// owner again. It reports after how long that was, after how long all keys of all slots were known, and what part of
// the takes read their key. There are 100,000 keys, by which the second time grows.
func BenchmarkColdSlots(b *testing.B) {
	policies := []policy.Policy{{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}}}
	for _, run := range []struct {
		name string
		then func(all []*running, start func(n int) []*running) []*running
	}{
		{"nothing happened", func(all []*running, _ func(int) []*running) []*running { return all }},
		{"one of three left", func(all []*running, _ func(int) []*running) []*running { all[0].stop(); return all[1:] }},
		{"one of three was killed", func(all []*running, _ func(int) []*running) []*running { all[0].kill(); return all[1:] }},
		{"all were restarted", func(all []*running, start func(int) []*running) []*running {
			for _, r := range all {
				r.stop()
			}
			return start(3)
		}},
	} {
		b.Run(run.name, func(b *testing.B) {
			config := newConfig(b)
			start := func(n int) []*running { return startInstances(b, config, n, policies) }
			all := start(3)
			isComplete := func(st *cluster.Status) int { return st.Complete }
			awaitSlots(b, all, isComplete)
			takeNewCallers(b, all, 100_000)
			all = run.then(all, start)
			began := time.Now()
			awaitSlots(b, all, func(st *cluster.Status) int { return st.Owned })
			owned, reads := time.Since(began), coldReads(all)
			var complete time.Duration
			known := make(chan struct{})
			go func() {
				defer close(known)
				awaitSlots(b, all, isComplete)
				complete = time.Since(began)
			}()
			takeInTurn(b, enginesOf(all), takeOfNewCaller)
			<-known
			b.ReportMetric(owned.Seconds(), "s-to-owned")
			b.ReportMetric(complete.Seconds(), "s-to-complete")
			b.ReportMetric(float64(coldReads(all)-reads)/float64(b.N), "cold-reads/op")
		})
	}
}

func takeOfNewCaller() *limiter.Call {
	return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "p", Identifier: germanNumber()}}}
}

// takeNewCallers takes of so many new callers, over instances in turn.
func takeNewCallers(b *testing.B, all []*running, n int) {
	b.Helper()
	var callers sync.WaitGroup
	var turn atomic.Int64
	for range 256 {
		callers.Go(func() {
			for i := turn.Add(1); i <= int64(n); i = turn.Add(1) {
				if a, err := all[i%int64(len(all))].engine.Do(b.Context(), takeOfNewCaller()); err != nil || !a.Allowed {
					b.Errorf("%+v, %v", a.Decision, err)
				}
			}
		})
	}
	callers.Wait()
}

func coldReads(all []*running) (n int64) {
	for _, r := range all {
		n += r.engine.ColdReads()
	}
	return n
}
