package policyfile_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// limitOf reads a limit as "algorithm limit window".
func limitOf(t *testing.T, name, text string) policy.Limit {
	t.Helper()
	f, err := policyfile.ParseFile("p.yaml", []byte("policies:\n  - name: p\n    limits: [{name: "+name+", "+text+"}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return f.Policies[0].Limits[0]
}

// TestIdle names limits that can never deny beside others, and no others.
func TestIdle(t *testing.T) {
	const log, fixed, tail = "algorithm: sliding-log", "algorithm: fixed-window", "algorithm: sliding-tail"
	const token, leaky = "algorithm: token-bucket", "algorithm: leaky-bucket"
	for _, c := range []struct {
		a, b, idle string // names, with commas between
	}{
		{log + ", limit: 10, window: 1h", log + ", limit: 300, window: 1d", "b"},
		{log + ", limit: 10, window: 1h", log + ", limit: 240, window: 1d", "b"},
		{log + ", limit: 10, window: 1h", log + ", limit: 239, window: 1d", ""},
		{log + ", limit: 10, window: 1h", fixed + ", limit: 250, window: day", "b"},
		{log + ", limit: 10, window: 1h", fixed + ", limit: 249, window: day", ""},
		{fixed + ", limit: 10, window: 1h", fixed + ", limit: 240, window: 1d", "b"},
		{fixed + ", limit: 10, window: 1h", log + ", limit: 240, window: 1d", ""},
		{fixed + ", limit: 10, window: 1h", log + ", limit: 250, window: 1d", "b"},
		{log + ", limit: 10, window: 1h", log + ", limit: 20, window: 1h", "b"},
		{log + ", limit: 20, window: 1h", log + ", limit: 10, window: 1h", "a"},
		{log + ", limit: 10, window: 1h", log + ", limit: 10, window: 1h", "b"},
		{tail + ", limit: 10, window: 1h", tail + ", limit: 10, window: 1h, rounding: up", ""},
		{tail + ", limit: 10, window: 1h", tail + ", limit: 10, window: 1h", "b"},
		{tail + ", limit: 10, window: 1h", tail + ", limit: 490, window: 1d", "b"},
		{tail + ", limit: 10, window: 1h", tail + ", limit: 480, window: 1d", ""},
		{fixed + ", limit: 10, window: day", fixed + ", limit: 10, window: day, timezone: Europe/Berlin", ""},
		{token + ", limit: 10, window: 1m, burst: 5", token + ", limit: 600, window: 1h", "b"},
		{token + ", limit: 10, window: 1m, burst: 5", token + ", limit: 599, window: 1h", ""},
		{token + ", limit: 10, window: 1m, burst: 5", token + ", limit: 600, window: 1h, burst: 4", "a"},
		{leaky + ", limit: 10, window: 1m", leaky + ", limit: 600, window: 1h", "b"},
		{leaky + ", limit: 10, window: 1m", leaky + ", limit: 599, window: 1h", ""},
		{log + ", limit: 0, window: 1m", log + ", limit: 10, window: 2m", ""},
		{fixed + ", limit: 1000000000000000, window: 1s", fixed + ", limit: 1000000000000000, window: 31d", ""},
	} {
		p := policy.Policy{Name: "p", Limits: []policy.Limit{limitOf(t, "a", c.a), limitOf(t, "b", c.b)}}
		told := policyfile.Idle(&p)
		want := 0
		if c.idle != "" {
			want = 1
		}
		if len(told) != want || want == 1 && !strings.Contains(told[0], "the limit "+c.idle+" can never deny") {
			t.Errorf("%s beside %s: %q, want %q", c.a, c.b, told, c.idle)
		}
		p.Count = policy.CountAll
		if told := policyfile.Idle(&p); told != nil {
			t.Errorf("what a limit denies counts: %q", told)
		}
	}
}

// TestShadowsBoundNothing names no limit idle because of a shadow, and a shadow that would deny nothing.
func TestShadowsBoundNothing(t *testing.T) {
	p := policy.Policy{Name: "p", Limits: []policy.Limit{
		limitOf(t, "a", "algorithm: sliding-log, limit: 10, window: 1h"), limitOf(t, "b", "algorithm: sliding-log, limit: 5, window: 1h"),
	}}
	p.Limits[1].Shadow = true
	if told := policyfile.Idle(&p); told != nil {
		t.Errorf("beside a tighter shadow: %q", told)
	}
	p.Limits[1].Limit = 20
	if told := policyfile.Idle(&p); len(told) != 1 {
		t.Errorf("of a looser shadow: %q", told)
	}
}

// TestIdleLimitsDenyNothing takes at random moments under two limits of which one is told to be
// idle: it never denies.
func TestIdleLimitsDenyNothing(t *testing.T) {
	algorithms := []string{"sliding-log", "fixed-window", "sliding-window", "sliding-tail", "leaky-bucket", "token-bucket"}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	tried := 0
	for tried < 150 {
		limit := func(name string) policy.Limit {
			return policy.Limit{
				Name: name, Algorithm: algorithms[r.IntN(len(algorithms))], Limit: 1 + r.Int64N(40),
				Window: time.Duration(1+r.IntN(8)) * time.Second,
			}
		}
		p := policy.Policy{Name: "p", Limits: []policy.Limit{limit("a"), limit("b")}}
		told := policyfile.Idle(&p)
		if len(told) == 0 || len(p.Problems()) > 0 {
			continue
		}
		tried++
		idle := slices.IndexFunc(p.Limits, func(l policy.Limit) bool { return strings.Contains(told[0], "limit "+l.Name+" can") })
		synctest.Test(t, func(t *testing.T) {
			e := limiter.New(embedded.New(nil), nil)
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				t.Fatal(err)
			}
			for range 300 {
				time.Sleep(time.Duration(r.Int64N(int64(400 * time.Millisecond))))
				d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "i", Cost: 1 + r.Int64N(2)%p.Limits[1-idle].Limit})
				if err != nil {
					t.Fatal(err)
				}
				if limits := d.Limits(); !limits[idle].Allowed && limits[1-idle].Allowed {
					t.Fatalf("seed %d: %+v: %s denies: %+v", seed, p.Limits, p.Limits[idle].Name, limits)
				}
			}
		})
	}
}
