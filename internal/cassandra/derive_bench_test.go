package cassandra_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// BenchmarkTakeWithItsCountry takes from many numbers of one country, 64 at a time, and
// counts the country beside them: together it is one key that all of them write.
func BenchmarkTakeWithItsCountry(b *testing.B) {
	for _, c := range []struct {
		name    string
		country *limiter.Policy // nil: it is not counted
	}{
		{"alone", nil},
		{"counted", &limiter.Policy{}},
	} {
		b.Run(c.name, func(b *testing.B) { takeWithItsCountry(b, c.country) })
	}
}

func takeWithItsCountry(b *testing.B, country *limiter.Policy) {
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{
		Keyer: limiter.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second, Local: embedded.New(nil), Identifiers: identifier.Reader,
	})
	policies := []limiter.Policy{{
		Name: "p", Limits: []limiter.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}},
		Normalize: limiter.Normalize{Form: limiter.FormE164},
	}}
	if country != nil {
		country.Name, country.Limits = "country", []limiter.Limit{{Algorithm: "sliding-tail", Limit: 1_000_000, Window: time.Hour}}
		policies[0].Derive = []limiter.Derivation{{Policy: country.Name, From: limiter.PartCountry}}
		policies = append(policies, *country)
	}
	if err := e.SetPolicies(policies); err != nil {
		b.Fatal(err)
	}
	const callers = 64
	b.SetParallelism(callers / 2)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			number := limiter.Identifier(fmt.Sprintf("+49151%08d", rand.IntN(100_000_000)))
			if d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: number}); err != nil || !d.Allowed {
				b.Fatalf("%+v, %v", d, err)
			}
		}
	})
}
