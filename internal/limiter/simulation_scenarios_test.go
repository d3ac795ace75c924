package limiter_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// scenario is what a schedule is about: who calls what, and in which weather.
type scenario struct {
	name      string
	policies  []policy.Policy
	instances int
	clients   int
	lasts     time.Duration // calls are made until then
	thinks    time.Duration // between two calls of a client, on average
	settles   time.Duration // until all that was under way has landed, ended, or been given up
	weather   weather
	trouble   bool // instances stand still and die
	costs     bool // calls of more than one unit
	records   bool // calls that count whatever the limit
	keyed     bool // calls with idempotency keys beside others
	plain     bool // nothing is reserved, refunded or repeated, and each call is of one demand
	resets    bool // keys are reset
	rotated   bool // instances write under different hash keys
	skews     bool // clocks go beyond the tolerance for a while
	total     bool // windows are so long that all that is counted stays counted
	act       func(*client)
}

var (
	calm   = weather{fast: 3 * time.Millisecond, slow: 10 * time.Millisecond, slowly: 0.1}
	slow   = weather{fast: 10 * time.Millisecond, slow: 250 * time.Millisecond, slowly: 0.3}
	faulty = weather{
		fast: 5 * time.Millisecond, slow: 150 * time.Millisecond, slowly: 0.15,
		lost: 0.08, refused: 0.02, silent: 0.02, broken: 0.02, paused: 0.02, twice: 0.1,
	}
	stormy = weather{
		fast: 5 * time.Millisecond, slow: 300 * time.Millisecond, slowly: 0.25,
		lost: 0.2, refused: 0.03, silent: 0.06, broken: 0.05, paused: 0.05, twice: 0.2,
	}
)

// drawScenario draws one of all that there are.
func drawScenario(rng *rand.Rand) scenario {
	s := [](func(*rand.Rand) scenario){
		drawShort, drawShort, drawShort, drawBucket, drawBucket, drawKeyed, drawChanges, drawBoth,
		drawEither, drawAll, drawResets, drawRotated, drawSkewed,
	}[rng.IntN(13)](rng)
	s.instances = 2 + rng.IntN(3)
	s.clients = 3 + rng.IntN(3)
	s.weather = []weather{calm, slow, faulty, faulty, stormy}[rng.IntN(5)]
	s.trouble = rng.IntN(5) < 2
	s.settles = 25 * time.Second
	return s
}

// tallied returns s with its windows counted in running totals in every other schedule, and in counters in the others.
func (s scenario) tallied(seed uint64) scenario {
	inRows := rand.New(rand.NewPCG(seed, streamTallied)).IntN(2) != 0
	s.policies = slices.Clone(s.policies)
	for i := range s.policies {
		switch p := &s.policies[i]; {
		case inRows:
			p.Counting = policy.CountingRows
		case p.Counting == "":
			p.Counting = policy.CountingCounters
		}
	}
	if inRows {
		s.name += " in rows"
	}
	return s
}

// crowded returns s or, in its place, in one schedule of 16, a window in rows or a log that holds
// more, with more clients that ask for it more often.
func (s scenario) crowded(seed uint64) scenario {
	if seed%16 != 5 {
		return s
	}
	rng := rand.New(rand.NewPCG(seed, streamCrowded))
	l := shortLimit(rng, oneOf(rng, "sliding-log", "sliding-log", "sliding-tail", "fixed-window"))
	l.Limit = 4 + rng.Int64N(40)
	made := scenario{
		name: "crowded " + l.Algorithm, instances: s.instances, clients: s.clients + 3, weather: s.weather, trouble: s.trouble,
		settles: s.settles,
		act:     hammer, plain: true, lasts: 6 * time.Second, thinks: time.Duration(5+rng.IntN(40)) * time.Millisecond,
		costs: rng.IntN(4) == 0, records: rng.IntN(6) == 0, skews: rng.IntN(6) == 0,
		policies: []policy.Policy{{Name: "p", Counting: policy.CountingRows, Limits: []policy.Limit{l}}},
	}
	if l.Algorithm != "sliding-log" {
		return made
	}
	switch rng.IntN(6) {
	case 0:
		made.act, made.resets = forget, true
	case 1:
		made.act, made.plain, made.records, made.skews = change, false, false, false
	}
	return made
}

// releasing returns s or, in its place, in one schedule of 16, one whose clients release what they took under a concurrent
// limit, or leave it to the end of its hold.
func (s scenario) releasing(seed uint64) scenario {
	if seed%16 != 13 {
		return s
	}
	rng := rand.New(rand.NewPCG(seed, streamReleasing))
	l := shortLimit(rng, "concurrent")
	made := scenario{
		name: "concurrent", instances: s.instances, clients: s.clients + 3, weather: s.weather, trouble: s.trouble, settles: s.settles,
		act: change, lasts: 6 * time.Second, thinks: time.Duration(20+rng.IntN(100)) * time.Millisecond, costs: rng.IntN(4) == 0,
	}
	if made.total = rng.IntN(2) == 0; made.total {
		l.Window = longWindow
	}
	made.policies = []policy.Policy{{Name: "p", Limits: []policy.Limit{l}}}
	return made.fitted()
}

// oneOf returns one of names.
func oneOf[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// shortLimit returns a limit whose window passes a few times within a schedule.
func shortLimit(rng *rand.Rand, algorithm string) policy.Limit {
	l := policy.Limit{Algorithm: algorithm, Limit: 1 + rng.Int64N(4), Window: time.Duration(1000+100*rng.IntN(15)) * time.Millisecond}
	if algorithm == "sliding-window" {
		l.Buckets = oneOf(rng, 2, 4, 10)
		l.Window = l.Window.Truncate(200 * time.Millisecond)
	}
	return l
}

// drawShort has short windows hammered, under guarantee counted.
func drawShort(rng *rand.Rand) scenario {
	algorithm := oneOf(rng, "sliding-log", "sliding-log", "sliding-log", "fixed-window", "sliding-window", "sliding-tail", "token-bucket")
	s := scenario{
		name: "short " + algorithm, act: hammer, plain: true, lasts: 5 * time.Second, thinks: 60 * time.Millisecond,
		costs: rng.IntN(3) == 0, records: rng.IntN(4) == 0,
	}
	s.policies = []policy.Policy{{Name: "p", Limits: []policy.Limit{shortLimit(rng, algorithm)}}}
	if algorithm != "token-bucket" && rng.IntN(5) == 0 {
		second := shortLimit(rng, oneOf(rng, "sliding-log", "fixed-window"))
		second.Name, second.Window = "second", 3*time.Second
		s.policies[0].Limits = append(s.policies[0].Limits, second)
	}
	return s.fitted()
}

// drawBucket has buckets hammered, which are compared and set.
func drawBucket(rng *rand.Rand) scenario {
	algorithm := oneOf(rng, "leaky-bucket", "token-bucket")
	s := scenario{
		name: "bucket " + algorithm, act: hammer, plain: true, lasts: 5 * time.Second, thinks: 150 * time.Millisecond,
		costs: rng.IntN(3) == 0, records: rng.IntN(4) == 0,
	}
	if rng.IntN(2) == 0 {
		s.total = true
	}
	l := shortLimit(rng, algorithm)
	if s.total {
		l.Window, l.Limit = longWindow, 2+rng.Int64N(8)
	}
	s.policies = []policy.Policy{{Name: "p", Limits: []policy.Limit{l}}}
	return s.fitted()
}

// longWindow is so long that nothing leaves it, and ends on no edge.
const longWindow = 24 * time.Hour

// longPolicy returns a policy that forgets nothing while a schedule lasts.
func longPolicy(name, algorithm string, limit int64) policy.Policy {
	return policy.Policy{Name: name, Limits: []policy.Limit{{Algorithm: algorithm, Limit: limit, Window: longWindow}}}
}

// drawKeyed has calls repeated under idempotency keys.
func drawKeyed(rng *rand.Rand) scenario {
	algorithm := oneOf(rng, "sliding-log", "sliding-log", "sliding-log", "fixed-window", "token-bucket")
	return scenario{
		name: "keyed " + algorithm, act: insist, lasts: 8 * time.Second, thinks: 300 * time.Millisecond, total: true,
		costs: rng.IntN(3) == 0, records: rng.IntN(3) == 0,
		policies: []policy.Policy{longPolicy("p", algorithm, 2+rng.Int64N(30))},
	}.fitted()
}

// drawChanges has units reserved, settled and refunded.
func drawChanges(rng *rand.Rand) scenario {
	algorithm := oneOf(rng, "sliding-log", "sliding-log", "fixed-window", "sliding-window", "token-bucket")
	return scenario{
		name: "changes " + algorithm, act: change, lasts: 8 * time.Second, thinks: 200 * time.Millisecond, total: true,
		costs:    rng.IntN(3) == 0,
		policies: []policy.Policy{longPolicy("p", algorithm, 2+rng.Int64N(8))},
	}.fitted()
}

// drawBoth has two demands stand or fall together.
func drawBoth(rng *rand.Rand) scenario {
	p, q := "sliding-log", oneOf(rng, "sliding-log", "sliding-log", "sliding-log", "fixed-window", "token-bucket")
	s := scenario{
		name: "both " + p + " and " + q, act: takeBoth, lasts: 6 * time.Second, thinks: 150 * time.Millisecond, total: true,
		costs: rng.IntN(3) == 0, keyed: rng.IntN(3) == 0,
	}
	limit := 2 + rng.Int64N(8)
	s.policies = []policy.Policy{
		{Name: "p", Limits: []policy.Limit{{Algorithm: p, Limit: limit, Window: longWindow}}},
		{Name: "q", Limits: []policy.Limit{{Algorithm: q, Limit: limit + rng.Int64N(3), Window: longWindow}}},
	}
	return s.fitted()
}

// drawEither has a demand by a bucket and another one stand or fall together, either of which may be full first.
func drawEither(rng *rand.Rand) scenario {
	p, q := oneOf(rng, "sliding-log", "sliding-log", "fixed-window"), oneOf(rng, "token-bucket", "leaky-bucket")
	return scenario{
		name: "either " + p + " and " + q, act: takeBoth, lasts: 5 * time.Second, thinks: 100 * time.Millisecond, total: true,
		costs:    rng.IntN(3) == 0,
		policies: []policy.Policy{longPolicy("p", p, 2+rng.Int64N(8)), longPolicy("q", q, 2+rng.Int64N(8))},
	}.fitted()
}

// drawAll has denied attempts counted, too.
func drawAll(rng *rand.Rand) scenario {
	algorithm := oneOf(rng, "sliding-log", "sliding-log", "fixed-window", "sliding-window", "sliding-tail")
	s := scenario{
		name: "all of " + algorithm, act: hammer, plain: true, lasts: 5 * time.Second, thinks: 300 * time.Millisecond,
		costs: rng.IntN(3) == 0, records: rng.IntN(4) == 0, total: rng.IntN(2) == 0,
	}
	l := shortLimit(rng, algorithm)
	l.Limit += 2 + rng.Int64N(6)
	if s.total {
		l.Window = longWindow
	}
	s.policies = []policy.Policy{{Name: "p", Count: policy.CountAll, Limits: []policy.Limit{l}}}
	return s.fitted()
}

// drawResets has keys reset.
func drawResets(rng *rand.Rand) scenario {
	algorithm := oneOf(rng, "sliding-log", "sliding-log", "sliding-log", "fixed-window", "fixed-window", "sliding-window", "token-bucket")
	return scenario{
		name: "resets of " + algorithm, act: forget, plain: true, lasts: 5 * time.Second, thinks: 100 * time.Millisecond, total: true,
		resets: true, costs: rng.IntN(3) == 0, records: rng.IntN(4) == 0,
		policies: []policy.Policy{longPolicy("p", algorithm, 2+rng.Int64N(8))},
	}.fitted()
}

// drawRotated has the hash key changed, out of step.
func drawRotated(rng *rand.Rand) scenario {
	algorithm := oneOf(rng, "sliding-log", "sliding-log", "fixed-window", "sliding-window", "sliding-tail")
	s := scenario{
		name: "hash keys of " + algorithm, act: hammer, plain: true, lasts: 5 * time.Second, thinks: 60 * time.Millisecond,
		rotated: true, costs: rng.IntN(3) == 0, records: rng.IntN(4) == 0,
	}
	l := shortLimit(rng, algorithm)
	if s.total = rng.IntN(2) == 0; s.total {
		l.Window, l.Limit = longWindow, 2+rng.Int64N(8)
		if rng.IntN(2) == 0 {
			s.act, s.resets = forget, true
		}
	}
	s.policies = []policy.Policy{{Name: "p", Limits: []policy.Limit{l}}}
	return s.fitted()
}

// drawSkewed has clocks that go beyond the tolerance for a while.
func drawSkewed(rng *rand.Rand) scenario {
	s := oneOf(rng, drawShort, drawShort, drawBucket)(rng)
	s.name, s.skews = "clocks off, "+s.name, true
	return s
}

// fitted returns s with costs that every limit can hold.
func (s scenario) fitted() scenario {
	for _, p := range s.policies {
		for _, l := range p.Limits {
			s.costs = s.costs && l.Limit > 1
		}
	}
	return s
}
