package denied

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestMemoryIsBounded holds that however many keys are denied, however long their logs are, and however often keys that were
// denied long ago are denied again, the memory has an end.
func TestMemoryIsBounded(t *testing.T) {
	for _, c := range []struct{ keys, each int }{{3 * maxDenials, 1}, {1000, 10_000}} {
		log := policy.Limit{Algorithm: "sliding-log", Limit: int64(c.each), Window: time.Hour}
		set := demand.Settings{StoreTimeout: time.Second}.WithDefaults()
		d, p := New(set, nil), demand.NewPlan(policy.Policy{Limits: []policy.Limit{log}}, set, false)
		now := store.InstantOf(time.Now())
		state := store.State{Logs: []store.Log{{Events: make([]store.Event, c.each)}}}
		for i := range state.Logs[0].Events {
			state.Logs[0].Events[i] = store.Event{At: now, Cost: 1}
		}
		key := func(i int) store.Key {
			var sum [store.KeySize]byte
			binary.BigEndian.PutUint64(sum[:], uint64(i))
			return store.KeyFrom(sum)
		}
		for i := range c.keys {
			d.Put(&demand.Target{Plan: p, Key: key(i)}, time.Time{}, &state, false, false, now, 0)
			for _, earlier := range []int{i / 4, i * 3 / 4} {
				d.Expect(key(earlier), store.Distant-store.Instant(i))
			}
		}
		keys, events := 0, 0
		for _, generation := range []map[store.Key]denial{d.young, d.old} {
			keys += len(generation)
			for _, known := range generation {
				if known.full != nil {
					events += len(known.full.state.Logs[0].Events)
				}
			}
		}
		if keys == 0 || keys > 2*maxDenials || events > 2*(maxDenialEvents+c.each) {
			t.Errorf("%d keys of %d events: %d and %d are remembered", c.keys, c.each, keys, events)
		}
	}
}
