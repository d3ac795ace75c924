package count

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestPruneKeepsWhatHoldsHide holds that events which count once the holds after them have ended are not cut off, and that
// those beyond the limit and the spare ones are.
func TestPruneKeepsWhatHoldsHide(t *testing.T) {
	const now = store.Instant(1_000_000)
	p := NewRuleSet(policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 3, Window: time.Hour}}}, time.Second)
	for name, c := range map[string]struct {
		ends []int64 // of events, in seconds from now; 0: no hold
		want int
	}{
		"few events":            {[]int64{0, -5, 0}, 3},
		"many events":           {[]int64{0, 0, 0, 0, 0, 0}, 4},
		"holds that have ended": {[]int64{0, 0, -5, -5, -5, 0}, 3},
		"ended by a fast clock": {[]int64{0, 0, 0, 0, -1, 0}, 5},
		"holds":                 {[]int64{0, 0, 0, 5, 5, 5, 0}, 7},
		"more than enough":      {[]int64{0, 0, 0, 0, 5, 5, 5, 0}, 7},
	} {
		var log store.Log
		for i, ends := range c.ends {
			e := store.Event{ID: store.EventID{byte(i)}, At: now - 100 + store.Instant(i), Cost: 1}
			if ends != 0 {
				e.Ends = now + store.Instant(ends)*1000 + 500
			}
			log.Events = append(log.Events, e)
		}
		last := log.Events[len(c.ends)-1]
		p.Logs[0].Prune(&log, now, 1)
		if got := log.Events; len(got) != c.want || got[len(got)-1] != last {
			t.Errorf("%s: %d are left, want %d", name, len(got), c.want)
		}
	}
}
