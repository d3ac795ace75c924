package limiter

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// SomeOverrideChanges returns changes of two keys by several processes, some of them of the
// same moment.
func SomeOverrideChanges(r *rand.Rand, n int) []store.Change {
	keys := []store.Key{store.KeyFrom([store.KeySize]byte{1}), store.KeyFrom([store.KeySize]byte{2})}
	processes := []*store.EventIDs{store.NewEventIDs(), store.NewEventIDs(), store.NewEventIDs()}
	var changes []store.Change
	for range n {
		c := store.Change{Kind: store.ChangeOverride, Key: keys[r.IntN(2)], TTL: time.Hour}
		c.ID = processes[r.IntN(3)].Next(store.Instant(1000 + r.IntN(4)))
		if r.IntN(3) > 0 {
			details, _ := json.Marshal(overrides.Details{Policy: "p", Kind: policy.OverrideBlock})
			c.Until, c.Details = store.Instant(2000+r.IntN(9)), string(details)
		}
		changes = append(changes, c)
	}
	return changes
}

// OverridesAfter returns what is in force after changes, in this order.
func OverridesAfter(changes []store.Change) []overrides.Keyed {
	var o overrides.Set
	for i := range changes {
		o.Learn(&changes[i], 1500)
	}
	return o.All(1500)
}
