package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/race"
)

// TestForgetsCallersWhoseWindowsAreOver keeps few, however many come one after the other.
func TestForgetsCallersWhoseWindowsAreOver(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and hundreds of thousands of callers")
	}
	var policies []policy.Policy
	for _, algorithm := range []string{"sliding-log", "sliding-tail", "leaky-bucket"} {
		l := policy.Limit{Algorithm: algorithm, Limit: 1, Window: time.Second}
		policies = append(policies, policy.Policy{Name: algorithm, Limits: []policy.Limit{l}})
	}
	for _, p := range policies {
		r, err := New(&Options{Policies: []policy.Policy{p}, MaxCallers: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 200_000 { // a thousand a second
			demands := []limiter.Demand{{Policy: p.Name, Identifier: keys.Identifier(fmt.Sprint(n / 2))}}
			if _, err := r.Take(store.Instant(1e12+n), demands); err != nil {
				t.Fatalf("%s, event %d: %v", p.Name, n, err)
			}
		}
		if n, tried := r.now.store.Len(), r.trials.side.store.Len(); n > 40_000 || tried > 300_000 {
			t.Errorf("%s: %d keys, and %d of trials", p.Name, n, tried)
		}
	}
}

// TestTooManyCallers ends with an error that names the flag.
func TestTooManyCallers(t *testing.T) {
	p := policy.Policy{Name: "a", Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 1, Window: time.Hour}}}
	p.Mode, p.OnStoreError = policy.ModeShadow, policy.OnStoreErrorAllow
	r, err := New(&Options{Policies: []policy.Policy{p}, MaxCallers: 1000})
	for n := 0; err == nil && n < 10_000; n++ {
		_, err = r.Take(1e12, []limiter.Demand{{Policy: "a", Identifier: keys.Identifier(fmt.Sprint(n))}})
	}
	if err == nil || err.Error()[:len("too many callers")] != "too many callers" {
		t.Error(err)
	}
}

// TestSampledCallers estimates what all are by those that are kept.
func TestSampledCallers(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and hundreds of thousands of callers")
	}
	c, r := newCallers(1), rand.New(rand.NewPCG(1, 1))
	const all = 3 * maxSampled / 2
	for range all {
		hash := r.Uint64()
		for range 2 {
			if known := c.of(hash); known != nil {
				known.requests++
				known.limits[0].peak = int64(hash >> 32 % 1000)
			}
		}
	}
	twice := c.sum(func(c *caller) bool { return c.requests == 2 })
	if len(c.index) > maxSampled || twice < all*99/100 || twice > all*101/100 {
		t.Errorf("%d kept, %d estimated of %d", len(c.index), twice, all)
	}
	p := &PolicyResult{callers: c, Trials: [][]Trial{{{Number: 5000}}}, exact: []bool{true}}
	if number, denied, ok := p.Spares(0, .01); !ok || number < 985 || number > 993 || denied < all*8/1000 || denied > all/100 || !p.Sampled() {
		t.Errorf("%d spares 99 %%, but for %d", number, denied)
	}
}

// TestHitMost keeps those that are hit most often, however many others are.
func TestHitMost(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and hundreds of thousands of callers")
	}
	var h hits
	hit := func(n, times int) {
		for range times {
			h.note(&subject{id: fmt.Sprint(n), hash: uint64(n)}, store.Instant(n))
		}
	}
	for n := range 10 {
		hit(n, 10)
	}
	for n := range 3 * maxHits {
		hit(100+n, 1)
	}
	top := h.top(10)
	if len(h.index) > maxHits || !h.trimmed || len(top) != 10 || top[9].Denied != 10 || top[0].Identifier != "0" {
		t.Errorf("%d kept, %+v", len(h.index), top)
	}
}

// TestSeries widens its bins as time goes on, and loses nothing.
func TestSeries(t *testing.T) {
	s := newSeries()
	at := store.InstantOf(time.Date(2026, 10, 5, 7, 59, 59, 0, time.UTC))
	total := 0
	const day = 24 * time.Hour
	for _, step := range []time.Duration{0, time.Second, time.Minute, time.Hour, day, 100 * day, 100_000 * day} {
		for n := range 300 {
			at = at.Add(step)
			c := s.at(at).of("a", 1)
			c.Requests++
			c.Denied[0]++
			c.callers.InsertHash(rand.Uint64())
			if total++; n%2 == 0 {
				s.at(at).of("b", 1).Against++
			}
		}
		requests, against, callers := int64(0), int64(0), int64(0)
		for _, b := range s.Bins {
			if b != nil {
				requests, against = requests+b.of("a", 1).Denied[0], against+b.of("b", 1).Against
				callers += b.of("a", 1).Callers()
			}
		}
		if len(s.Bins) > maxBins || int(requests) != total || int(against) != total/2 ||
			callers < int64(total)*9/10 || callers > int64(total)*11/10 {
			t.Errorf("%v: %d bins of %v, %d of %d, %d callers", step, len(s.Bins), s.Width, requests, total, callers)
		}
		if !slices.Contains(widths, s.Width) || s.Start%store.Instant(s.Width.Milliseconds()) != 0 {
			t.Errorf("bins of %v from %v on", s.Width, s.Start.Time())
		}
	}
}

// TestDerivedTwice counts a network that two demands of a call derive once, with the sum of the
// costs, also where other limits are tried.
func TestDerivedTwice(t *testing.T) {
	limits := func(n int64) []policy.Limit {
		return []policy.Limit{{Algorithm: "fixed-window", Limit: n, Window: time.Hour}}
	}
	byNetwork := []policy.Derivation{{Policy: "network", From: policy.PartIPPrefix, IPv4Bits: 24}}
	ip := policy.Normalize{Form: policy.FormIP}
	r, err := New(&Options{Policies: []policy.Policy{
		{Name: "a", Limits: limits(100), Normalize: ip, Derive: byNetwork},
		{Name: "b", Limits: limits(100), Normalize: ip, Derive: byNetwork},
		{Name: "network", Limits: limits(4)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.Take(1e12, []limiter.Demand{{Policy: "a", Identifier: "192.0.2.1"}, {Policy: "b", Identifier: "192.0.2.2"}}); err != nil {
			t.Fatal(err)
		}
	}
	p := r.Policies["network"]
	if p.Requests != 3 || p.Denied != 1 {
		t.Errorf("%d of %d denied", p.Denied, p.Requests)
	}
	want := map[int64]int64{1: 3, 2: 2, 3: 2, 4: 1}
	for _, trial := range p.Trials[0] {
		if trial.Denied != want[trial.Number] {
			t.Errorf("%d denied if it is %d, want %d", trial.Denied, trial.Number, want[trial.Number])
		}
	}
}

// TestNumbersOfThePast applies rules about numbers and limits by country, and tries no limit for what
// a rule refuses.
func TestNumbersOfThePast(t *testing.T) {
	limit := policy.Limit{Algorithm: "fixed-window", Limit: 2, Window: time.Hour}
	byCountry := limit
	byCountry.Limit, byCountry.By = 1, map[string]int64{"DE": 3}
	number := policy.Policy{Name: "number", Limits: []policy.Limit{limit}, Normalize: policy.Normalize{Form: policy.FormE164}}
	number.Countries.Allow, number.NumberTypes.Deny = []string{"DE", "AT"}, []string{"shared_cost"}
	number.Derive = []policy.Derivation{{Policy: "country", From: policy.PartCountry}}
	r, err := New(&Options{Policies: []policy.Policy{number, {Name: "country", Limits: []policy.Limit{byCountry}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{
		"+33612345678", "+33612345678", "+33612345678", "+491802123456", // refused
		"+4915112345678", "+4915112345678", "+4915112345679", "+4915112345670", // the last by the country
		"+43664123456", "+43664123457", // the last by the country
	} {
		if _, err := r.Take(1e12, []limiter.Demand{{Policy: "number", Identifier: keys.Identifier(id)}}); err != nil {
			t.Fatal(err)
		}
	}
	p, country := r.Policies["number"], r.Policies["country"]
	if p.Requests != 10 || !slices.Equal(p.DeniedBy, []int64{0, 0, 4}) {
		t.Errorf("of %d numbers %v are denied by a limit, a block and a rule", p.Requests, p.DeniedBy)
	}
	if country.Requests != 6 || !slices.Equal(country.DeniedBy, []int64{2, 0, 0}) || len(country.Trials[0]) != 0 {
		t.Errorf("of %d calls of countries %v are denied, and %v are tried", country.Requests, country.DeniedBy, country.Trials[0])
	}
	for _, trial := range p.Trials[0] {
		if want := 4 + map[int64]int64{1: 1}[trial.Number]; trial.Denied != want {
			t.Errorf("%d denied if it is %d, want %d", trial.Denied, trial.Number, want)
		}
	}
}
