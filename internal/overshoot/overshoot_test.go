package overshoot

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// keys returns n keys, distributed like hashes.
func keys(n int) []store.Key {
	all := make([]store.Key, n)
	for i := range all {
		all[i] = store.KeyFrom(sha256.Sum256([]byte(strconv.Itoa(i))))
	}
	return all
}

// TestEpisodes follows two keys from their first denial to the end of its window.
func TestEpisodes(t *testing.T) {
	var ended []Episode
	table := New(func(e Episode) { ended = append(ended, e) }, DefaultMaxKeys)
	k, tally := keys(2), NewTally("p", noon)
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
		{at: 60 * time.Second, key: 0, place: First, ended: []Episode{{"p", 3, 1.3}}},
		{at: 100 * time.Second, key: 1, place: First, ended: []Episode{{"p", 3, 1.3}, {"p", 1, 1.1}}},
	} {
		at := noon.Add(s.at)
		place := table.Count(Attempt{Tally: tally, Key: k[s.key], Units: 1, Limit: 10, At: at, Ends: at.Add(time.Minute)})
		if place != s.place || !slices.Equal(ended, s.ended) {
			t.Errorf("%v: place %d, ended %v, want %d and %v", s.at, place, ended, s.place, s.ended)
		}
	}
	table.Flush(noon.Add(119 * time.Second))
	if len(ended) != 2 || table.Len() != 2 || tally.Open() != 2 {
		t.Errorf("flushed too early: %v, %d open", ended, tally.Open())
	}
	table.Flush(noon.Add(120 * time.Second))
	if len(ended) != 3 || table.Len() != 1 || tally.Open() != 1 {
		t.Errorf("%v, %d and %d left, want three ended and one left", ended, table.Len(), tally.Open())
	}
}

// TestFullTable holds that a full table drops new keys, counts the old ones, and has room later.
func TestFullTable(t *testing.T) {
	table := New(func(Episode) {}, shardCount) // one key a shard
	places := make(map[Place]int)
	many, tally := keys(200), NewTally("p", noon)
	for range 2 {
		for _, key := range many {
			places[table.Count(Attempt{Tally: tally, Key: key, Units: 2, At: noon, Ends: noon.Add(time.Minute)})]++
		}
	}
	if places[First] != shardCount || places[Further] != shardCount || places[Dropped] != 2*(200-shardCount) {
		t.Errorf("%v", places)
	}
	r := table.Report(tally, 200, noon)
	if r.Attempts != 400 || r.Units != 800 || r.Dropped != 2*(200-shardCount) || r.Episodes != shardCount || len(r.Worst) != 200 {
		t.Errorf("%d keys of %+v", len(r.Worst), r)
	}
	full := table.Len()
	for _, key := range many { // a key that is in the table starts again, others take their places
		places[table.Count(Attempt{Tally: tally, Key: key, At: noon.Add(time.Minute), Ends: noon.Add(time.Minute)})]++
	}
	if places[First] != 2*shardCount || table.Len() != full {
		t.Errorf("%v, %d keys", places, table.Len())
	}
	table.Flush(noon.Add(time.Minute))
	if place := table.Count(Attempt{Tally: tally, Key: many[199], At: noon.Add(time.Minute)}); place != First {
		t.Errorf("no room after a flush: %d", place)
	}
}

// TestManyAtOnce holds that concurrent attempts are all counted: run it with -race.
func TestManyAtOnce(t *testing.T) {
	var mu sync.Mutex
	total := int64(0)
	table := New(func(e Episode) {
		mu.Lock()
		defer mu.Unlock()
		total += e.Attempts
	}, DefaultMaxKeys)
	many, tally := keys(10), NewTally("p", noon)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 1000 {
				at := noon.Add(time.Duration(i) * time.Second)
				table.Count(Attempt{Tally: tally, Key: many[i%len(many)], Units: 1, Limit: 1, At: at, Ends: at.Add(time.Minute)})
				if i%100 == 0 {
					table.Report(tally, 5, at)
				}
			}
		})
	}
	all.Wait()
	table.Flush(noon.Add(20 * time.Minute))
	if total != 4000 || table.Len() != 0 {
		t.Errorf("%d attempts, %d keys left, want 4000 and 0", total, table.Len())
	}
	r := table.Report(tally, 100, noon.Add(20*time.Minute))
	if r.Attempts != 4000 || r.Units != 4000 || r.Open != 0 || r.Episodes != r.PerEpisode.Count || len(r.Worst) != 10 {
		t.Errorf("%+v", r)
	}
}
