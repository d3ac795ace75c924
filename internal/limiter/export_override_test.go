package limiter

import (
	"encoding/json"
	"math/rand/v2"
	"time"
)

// SomeOverrideChanges returns changes of two keys by several processes, some of them of the
// same moment.
func SomeOverrideChanges(r *rand.Rand, n int) []Change {
	keys := []Key{KeyFrom([KeySize]byte{1}), KeyFrom([KeySize]byte{2})}
	processes := []*eventIDs{newEventIDs(), newEventIDs(), newEventIDs()}
	var changes []Change
	for range n {
		c := Change{ID: processes[r.IntN(3)].next(Instant(1000 + r.IntN(4))), Kind: ChangeOverride, Key: keys[r.IntN(2)], TTL: time.Hour}
		if r.IntN(3) > 0 {
			details, _ := json.Marshal(overrideDetails{Policy: "p", Kind: OverrideBlock})
			c.Until, c.Details = Instant(2000+r.IntN(9)), string(details)
		}
		changes = append(changes, c)
	}
	return changes
}

// OverridesAfter returns what is in force after changes, in this order.
func OverridesAfter(changes []Change) []KeyOverride {
	var o overrides
	for i := range changes {
		o.learn(&changes[i], 1500)
	}
	return o.all(1500)
}
