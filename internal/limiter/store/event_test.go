package store_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestLogGrowsToItsLimit holds how much room a log has that fills up to its limit: by appending alone, one of ten
// events would have some for sixteen.
func TestLogGrowsToItsLimit(t *testing.T) {
	for limit, want := range map[int]int{1: 1, 3: 3, 10: 10, 100: 100} {
		var log store.Log
		for at := range limit {
			log.Grow(1, limit)
			log.Insert(store.Event{At: store.Instant(at), Cost: 1})
			if len(log.Events) != at+1 || log.Events[at].At != store.Instant(at) {
				t.Fatalf("of limit %d, after %d: %v", limit, at+1, log.Events)
			}
		}
		if got := cap(log.Events); got != want {
			t.Errorf("a log of limit %d has room for %d events, want %d", limit, got, want)
		}
	}
}
