package cassandra_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// BenchmarkTakeWithItsCountry takes from many numbers of one country, over three instances in turn, and
// counts the country beside them: together it is one key that all of them write.
func BenchmarkTakeWithItsCountry(b *testing.B) {
	for _, c := range []struct {
		name    string
		country *policy.Policy // nil: it is not counted
	}{
		{"alone", nil},
		{"counters", &policy.Policy{Counting: policy.CountingCounters}},
		{"rows", &policy.Policy{Counting: policy.CountingRows}},
		{"local", &policy.Policy{Guarantee: policy.GuaranteeLocal}},
	} {
		b.Run(c.name, func(b *testing.B) { takeWithItsCountry(b, c.country) })
	}
}

func takeWithItsCountry(b *testing.B, country *policy.Policy) {
	policies := []policy.Policy{{
		Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}},
		Normalize: policy.Normalize{Form: policy.FormE164},
	}}
	if country != nil {
		country.Name, country.Limits = "country", []policy.Limit{{Algorithm: "sliding-tail", Limit: 1_000_000, Window: time.Hour}}
		policies[0].Derive = []policy.Derivation{{Policy: country.Name, From: policy.PartCountry}}
		policies = append(policies, *country)
	}
	takeInTurn(b, enginesOf(startOwners(b, 3, policies)), func() *limiter.Call {
		return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "p", Identifier: germanNumber()}}}
	})
}

// BenchmarkSignupFlow takes what a sign-up takes under examples/sms-signup/sms-pumping.yaml, in one call, over three
// instances in turn: number, device, address and money, and with them range, country and network. All numbers are of
// one country, which all calls count, as they do the money, and begin with one of a hundred prefixes.
func BenchmarkSignupFlow(b *testing.B) {
	policies, err := policyfile.Load("../../examples/sms-signup/sms-pumping.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for i := range policies {
		makeRoom(&policies[i])
	}
	takeInTurn(b, enginesOf(startOwners(b, 3, policies)), func() *limiter.Call {
		address := fmt.Sprintf("%d.%d.%d.%d", 1+rand.IntN(223), rand.IntN(256), rand.IntN(256), rand.IntN(256))
		return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
			{Policy: "sms-phone", Identifier: germanNumber()},
			{Policy: "sms-device", Identifier: keys.Identifier(fmt.Sprintf("device-%d", rand.Uint64()))},
			{Policy: "sms-address", Identifier: keys.Identifier(address)},
			{Policy: "sms-money", Identifier: "all", Cost: 75},
		}}
	})
}

// makeRoom has p deny no caller that shares a key.
func makeRoom(p *policy.Policy) {
	if p.Guarantee != policy.GuaranteeLocal {
		return
	}
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.By, l.Limit = nil, 1_000_000_000; l.Algorithm == policy.SlidingLog.Name { // nobody is asked under it, as nothing is denied
			l.Limit = 10_000
		}
	}
}

var numbers atomic.Int64

// germanNumber returns a number that it has not returned among the last 100 million.
func germanNumber() keys.Identifier {
	const all, step = 100_000_000, 61_803_399 // without a common divisor
	return keys.Identifier(fmt.Sprintf("+49151%08d", numbers.Add(step)%all))
}
