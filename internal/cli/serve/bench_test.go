package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

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
