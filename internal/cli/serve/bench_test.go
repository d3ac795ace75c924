package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// BenchmarkTakeOverHTTP measures takes over keep-alive connections, client and
// server in one process: unique callers, each with an event to store, and one
// caller far over its limit.
func BenchmarkTakeOverHTTP(b *testing.B) {
	b.Run("embedded", func(b *testing.B) { benchmarkTakes(b, "--store=embedded") })
	b.Run("cassandra", func(b *testing.B) {
		benchmarkTakes(b, "--store=cassandra", "--migrate",
			"--cassandra-hosts="+strings.Join(cassandratest.Hosts(b), ","), "--cassandra-keyspace="+cassandratest.Keyspace(b),
			"--store-timeout=5s") // a benchmark saturates the node
	})
}

func benchmarkTakes(b *testing.B, flags ...string) {
	s := start(b, nil, append(flags, "--log-level=error")...)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	for _, policy := range []string{"sms-send", "api"} {
		b.Run(policy+"/unique", func(b *testing.B) {
			var n atomic.Int64
			takes(b, client, s.URL, func() string { return fmt.Sprintf("%s %d of %d", policy, n.Add(1), b.N) }, policy)
		})
		b.Run(policy+"/one", func(b *testing.B) { takes(b, client, s.URL, func() string { return "one" }, policy) })
	}
}

// BenchmarkUI measures takes with the live page and without it, in turns: what they allocate, and how much time of
// processors they take, client and server. Wall time says little on a machine that has other things to do.
func BenchmarkUI(b *testing.B) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	servers := map[bool]string{}
	for _, on := range []bool{false, true} {
		servers[on] = start(b, nil, fmt.Sprintf("--ui=%t", on), "--log-level=error").URL
	}
	for turn := range 5 {
		for _, on := range []bool{false, true} {
			b.Run(fmt.Sprintf("ui=%t/%d", on, turn), func(b *testing.B) {
				client.CloseIdleConnections() // the server ends what idles, while others have their turn
				before := processorTime(b)
				takes(b, client, servers[on], func() string { return "one" }, "api")
				b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime returns how much of it this process has had.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func takes(b *testing.B, client *http.Client, url string, identifier func() string, policy string) {
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			body := strings.NewReader(fmt.Sprintf(`{"policy":%q,"identifier":%q}`, policy, identifier()))
			resp, err := client.Post(url+"/v1/take", "application/json", body)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
				b.Errorf("status %d", resp.StatusCode)
				return
			}
		}
	})
}

// BenchmarkManyPolicies measures takes under ten policies in the store and under ten thousand, and how long it takes
// to apply those: until the answer, when they are in force.
func BenchmarkManyPolicies(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		s := start(b, nil, "--log-level=error", "--audit-log="+b.TempDir()+"/audit")
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
		put := func(limit int) {
			var text strings.Builder
			text.WriteString("policies:\n")
			for i := range n {
				fmt.Fprintf(&text, "  - {name: p%d, limits: [{algorithm: sliding-log, limit: %d, window: 1h}]}\n", i, limit)
			}
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPut, s.URL+"/v1/policies", strings.NewReader(text.String()))
			if err != nil {
				b.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/yaml")
			r.Header.Set("If-Match", "*")
			resp, err := client.Do(r)
			if err != nil {
				b.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				b.Fatalf("status %d", resp.StatusCode)
			}
		}
		limit := 1000
		put(limit)
		b.Run(fmt.Sprint("take/", n), func(b *testing.B) {
			var i atomic.Int64
			takes(b, client, s.URL, func() string { return fmt.Sprint(i.Add(1)) }, fmt.Sprint("p", n-1))
		})
		b.Run(fmt.Sprint("apply/", n), func(b *testing.B) {
			for b.Loop() {
				limit++
				put(limit)
			}
		})
	}
}
