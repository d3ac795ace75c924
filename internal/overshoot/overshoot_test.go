package overshoot

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// keys returns n keys, which only an engine can make.
func keys(t *testing.T, n int) []limiter.Key {
	t.Helper()
	var seen keyList
	engine := limiter.New(embedded.New(nil), &limiter.Options{Observer: &seen})
	policy := limiter.Policy{Name: "p", Limits: []limiter.Limit{{Algorithm: "fixed-window", Limit: 1, Window: time.Minute}}}
	if err := engine.SetPolicies([]limiter.Policy{policy}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		demand := limiter.Demand{Policy: "p", Identifier: limiter.Identifier(strconv.Itoa(i))}
		if _, err := engine.Check(context.Background(), demand); err != nil {
			t.Fatal(err)
		}
	}
	return seen
}

// keyList keeps the key of every decision.
type keyList []limiter.Key

func (l *keyList) Observe(_ limiter.Op, key limiter.Key, _ *limiter.Decision) { *l = append(*l, key) }

// TestEpisodes follows two keys from their first denial to the end of its window.
func TestEpisodes(t *testing.T) {
	var ended []Episode
	table := New(func(e Episode) { ended = append(ended, e) }, nil)
	k := keys(t, 2)
	for _, s := range []struct {
		at    time.Duration
		key   int
		place Place
		ended []Episode
	}{
		{at: 0, key: 0, place: First},
		{at: 10 * time.Second, key: 0, place: Further},
		{at: 20 * time.Second, key: 1, place: First},
		{at: 59 * time.Second, key: 0, place: Further},
		{at: 60 * time.Second, key: 0, place: First, ended: []Episode{{"p", 3}}},
		{at: 100 * time.Second, key: 1, place: First, ended: []Episode{{"p", 3}, {"p", 1}}},
	} {
		at := noon.Add(s.at)
		place := table.Count(Attempt{Policy: "p", Key: k[s.key], At: at, Ends: at.Add(time.Minute)})
		if place != s.place || !slices.Equal(ended, s.ended) {
			t.Errorf("%v: place %d, ended %v, want %d and %v", s.at, place, ended, s.place, s.ended)
		}
	}
	table.Flush(noon.Add(119 * time.Second))
	if len(ended) != 2 || table.Len() != 2 {
		t.Errorf("flushed too early: %v", ended)
	}
	table.Flush(noon.Add(120 * time.Second))
	if len(ended) != 3 || table.Len() != 1 {
		t.Errorf("%v, %d left, want three ended and one left", ended, table.Len())
	}
}

// TestFullTable drops new keys, keeps counting the old, and has room again.
func TestFullTable(t *testing.T) {
	table := New(func(Episode) {}, &Options{MaxKeys: shardCount}) // one key a shard
	places := make(map[Place]int)
	many := keys(t, 200)
	for range 2 {
		for _, key := range many {
			places[table.Count(Attempt{Key: key, At: noon, Ends: noon.Add(time.Minute)})]++
		}
	}
	if places[First] != shardCount || places[Further] != shardCount || places[Dropped] != 2*(200-shardCount) {
		t.Errorf("%v", places)
	}
	full := table.Len()
	for _, key := range many { // who is in it starts anew there, whoever else is
		places[table.Count(Attempt{Key: key, At: noon.Add(time.Minute), Ends: noon.Add(time.Minute)})]++
	}
	if places[First] != 2*shardCount || table.Len() != full {
		t.Errorf("%v, %d keys", places, table.Len())
	}
	table.Flush(noon.Add(time.Minute))
	if place := table.Count(Attempt{Key: many[199], At: noon.Add(time.Minute)}); place != First {
		t.Errorf("no room after a flush: %d", place)
	}
}

// TestManyAtOnce loses no attempt: run it with -race.
func TestManyAtOnce(t *testing.T) {
	var mu sync.Mutex
	total := int64(0)
	table := New(func(e Episode) {
		mu.Lock()
		defer mu.Unlock()
		total += e.Attempts
	}, nil)
	many := keys(t, 10)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				at := noon.Add(time.Duration(i) * time.Second)
				table.Count(Attempt{Key: many[i%len(many)], At: at, Ends: at.Add(time.Minute)})
				if i%100 == 0 {
					table.Flush(at)
				}
			}
		})
	}
	all.Wait()
	table.Flush(noon.Add(time.Hour))
	if total != 4000 || table.Len() != 0 {
		t.Errorf("%d attempts, %d keys left, want 4000 and 0", total, table.Len())
	}
}
