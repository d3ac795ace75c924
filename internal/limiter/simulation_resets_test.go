package limiter_test

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// resetWords are the resets of a log or of counters, each as far as it has come.
type resetWords []struct {
	at      store.Instant
	reaches [nodes]time.Duration
}

// seen returns the latest that t has seen.
func (r resetWords) seen(t *trip) (latest store.Instant) {
	for i := range r {
		if t.sees(&r[i].reaches) {
			latest = max(latest, r[i].at)
		}
	}
	return latest
}

func (r *resetWords) say(at store.Instant, t *trip) {
	*r = append(*r, struct {
		at      store.Instant
		reaches [nodes]time.Duration
	}{at, t.reaches})
}

// reset stores when w's key was reset, if it was.
func (c *cluster) reset(p *partition, w *store.Write) (trips []trip) {
	if w.Reset == 0 {
		return nil
	}
	places := make([]*resetWords, len(w.Logs))
	for i := range w.Logs {
		places[i] = &p.logs[w.Logs[i].Span].resets
	}
	if w.Counts || w.Tally {
		places = append(places, &p.resets)
	}
	for _, place := range places {
		t := c.travel(w.Level)
		place.say(w.Reset, &t)
		trips = append(trips, t)
	}
	return trips
}
