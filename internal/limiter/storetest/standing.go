package storetest

import (
	"context"
	"crypto/rand"
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// testStandingLeases has one engine count a 64th, or two, ahead of all keys and another fill one
// of them: together they admit the limit. A store that holds keys still needs no leases.
func testStandingLeases(t *testing.T, store limiter.Store) {
	for algorithm, limit := range map[string]int64{"sliding-tail": 1000, "sliding-log": 100} {
		t.Run(algorithm, func(t *testing.T) {
			fillBeside(t, store, limiter.Policy{
				Name: "p", Counting: limiter.CountingRows, Leases: limiter.LeasesStanding,
				Limits: []limiter.Limit{{Algorithm: algorithm, Limit: limit, Window: anHourJustBegun()}},
			})
		})
	}
}

// anHourJustBegun returns a window of an hour or some more of which less than half is over: an
// engine counts ahead of the next one late in each, and is then left twice as much.
func anHourJustBegun() time.Duration {
	now := time.Duration(time.Now().UnixNano())
	window := time.Hour
	for now%window > window/2 {
		window += time.Minute
	}
	return window
}

func fillBeside(t *testing.T, store limiter.Store, policy limiter.Policy) {
	t.Helper()
	limit := int(policy.Limits[0].Limit)
	opts := limiter.Options{Keyer: limiter.Keyer{Namespace: rand.Text()}, ClockTolerance: 10 * time.Millisecond, Now: time.Now}
	a, b := NewEngine(t, store, opts, policy), NewEngine(t, store, opts, policy)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	for i := 0; !a.InMemory() && !a.takeOf(t, strconv.Itoa(i)).Leased; i++ {
		if i == 200 {
			t.Fatal("there is no allowance after 20 s")
		}
		time.Sleep(100 * time.Millisecond)
	}
	filled := b.fill(t)
	if own := a.fill(t); filled+own != limit || !a.InMemory() && own != max(2, limit/64) {
		t.Errorf("%d admitted by one engine and %d by another, want %d together", filled, own, limit)
	}
}

func (e Engine) takeOf(t *testing.T, id string) limiter.Decision {
	t.Helper()
	d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(id)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// fill takes until it is denied, and returns how many units were admitted.
func (e Engine) fill(t *testing.T) (admitted int) {
	t.Helper()
	for e.Do(t, limiter.OpTake, "p").Allowed {
		admitted++
	}
	return admitted
}
