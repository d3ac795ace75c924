package inprocess_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/inprocess"
)

// BenchmarkTake takes from many identifiers in memory.
func BenchmarkTake(b *testing.B) {
	limits, err := inprocess.Open(b.Context(), "policies: [{name: p, limits: [{algorithm: sliding-tail, limit: 1000, window: 1m}]}]", nil)
	if err != nil {
		b.Fatal(err)
	}
	defer limits.Close()
	const identifiers = 100_000
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d, err := limits.Take(b.Context(), client.Demand{Policy: "p", Identifier: strconv.FormatInt(next.Add(1)%identifiers, 10)})
			if err != nil || d.Policy != "p" {
				b.Fatal(d, err)
			}
		}
	})
}
