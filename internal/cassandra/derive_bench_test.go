package cassandra_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/peer"
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
		{"counters", &policy.Policy{}},
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
	takeInTurn(b, startInstances(b, 3, policies), func() *limiter.Call {
		return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "p", Identifier: germanNumber()}}}
	})
}

// BenchmarkSignupFlow takes what a sign-up takes under examples/sms-signup/sms-pumping.yaml, in one call, over three
// instances in turn: number, device, address and budget, and with them prefix, country and network. All numbers are of
// one country, which all calls count, as they do the budget, and begin with one of ten prefixes.
func BenchmarkSignupFlow(b *testing.B) {
	policies, err := policyfile.Load("../../examples/sms-signup/sms-pumping.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for i := range policies {
		makeRoom(&policies[i])
	}
	takeInTurn(b, startInstances(b, 3, policies), func() *limiter.Call {
		address := fmt.Sprintf("%d.%d.%d.%d", 1+rand.IntN(223), rand.IntN(256), rand.IntN(256), rand.IntN(256))
		return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
			{Policy: "sms-phone", Identifier: germanNumber()},
			{Policy: "sms-device", Identifier: keys.Identifier(fmt.Sprintf("device-%d", rand.Uint64()))},
			{Policy: "sms-address", Identifier: keys.Identifier(address)},
			{Policy: "sms-budget", Identifier: "all", Cost: 75},
		}}
	})
}

// makeRoom has p deny none of those who share a key.
func makeRoom(p *policy.Policy) {
	if p.Guarantee != policy.GuaranteeLocal && p.Name != "sms-conversion" {
		return
	}
	for i := range p.Limits {
		p.Limits[i].By, p.Limits[i].Limit = nil, 1_000_000_000
	}
}

var numbers atomic.Int64

// germanNumber returns a number that it has not returned among the last 100 million.
func germanNumber() keys.Identifier {
	const all, step = 100_000_000, 61_803_399 // without a common divisor
	return keys.Identifier(fmt.Sprintf("+49151%08d", numbers.Add(step)%all))
}

// takeInTurn has many callers at a time take what they want, of engines in turn, all of which must be allowed.
func takeInTurn(b *testing.B, engines []*limiter.Engine, want func() *limiter.Call) {
	b.Helper()
	const callers = 768
	var turn atomic.Int64
	b.SetParallelism(callers / 2)
	b.ResetTimer()
	report := measureCPU(b)
	b.RunParallel(func(p *testing.PB) {
		e := engines[turn.Add(1)%int64(len(engines))]
		for p.Next() {
			if a, err := e.Do(b.Context(), want()); err != nil || !a.Allowed {
				b.Errorf("%+v, %v", a.Decision, err)
			}
		}
	})
	report()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// startInstances returns engines that own all keys between them, and reach each other over a network.
func startInstances(b *testing.B, n int, policies []policy.Policy) (engines []*limiter.Engine) {
	b.Helper()
	config := newConfig(b)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var clusters []*cluster.Cluster
	for range n {
		store := newStore(b, config)
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		creds, err := peer.SharedSecret([]byte("of more than thirty-two characters"))
		if err != nil {
			b.Fatal(err)
		}
		members, pool := store.Members(b.Name()), (*peer.Pool)(nil)
		c := cluster.New(members, &cluster.Options{
			Address: listener.Addr().String(), LookThrough: members.LookThrough, Logger: slog.New(slog.DiscardHandler),
			HandOver: func(ctx context.Context, to cluster.Member, view int64, slices []cluster.Handed) error {
				return pool.HandOver(ctx, to, view, slices)
			},
		})
		pool = peer.NewPool(c, creds, slog.New(slog.DiscardHandler))
		e := limiter.New(store, &limiter.Options{
			Keyer: keys.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second, Local: embedded.New(nil),
			Identifiers: identifier.Reader, Owners: peer.NewOwners(c, pool),
		})
		if err := e.SetPolicies(policies); err != nil {
			b.Fatal(err)
		}
		server := peer.NewServer(listener, creds, e, c, nil)
		for _, run := range []func(context.Context) error{c.Run, pool.Run, server.Run, e.Run, store.Run} {
			running.Go(func() { _ = run(ctx) })
		}
		clusters, engines = append(clusters, c), append(engines, e)
	}
	b.Cleanup(func() { stop(); running.Wait() }) // before the stores are closed
	awaitOwners(b, clusters)
	return engines
}

// awaitOwners waits until the members own all slices between them, and know all keys of them.
func awaitOwners(b *testing.B, members []*cluster.Cluster) {
	b.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		complete := 0
		for _, c := range members {
			if st := c.Status(); st.Installed && len(st.View.Members) == len(members) {
				complete += st.Complete
			}
		}
		if complete == cluster.Slices {
			return
		}
	}
	b.Fatal("the instances do not own all keys between them")
}
