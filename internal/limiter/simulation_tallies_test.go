package limiter_test

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// total is a running total as it was stored once.
type total struct {
	store.Tally
	reaches [nodes]time.Duration
	expires int64 // in seconds since the Unix epoch
}

// put stores w's running totals as t reaches the replicas, and now and then a second
// time.
func (c *cluster) put(p *partition, w *store.Write, t *trip) {
	ways := []*trip{t}
	if t.fails == nil && c.chance(c.weather.twice) {
		again := c.travel(w.Level)
		ways = append(ways, &again)
	}
	for _, way := range ways {
		for _, tally := range w.Put {
			p.put = append(p.put, total{tally, way.reaches, c.second(way) + int64(tally.TTL/time.Second)})
		}
	}
}

// totalsSeen returns the latest of each writer's totals that t has seen, unless it has
// expired: those before it stay hidden.
func (p *partition) totalsSeen(t *trip, second int64, after store.Instant) (counts []store.Count) {
	var latest []*total
	for i := range p.put {
		said := &p.put[i]
		if said.Expires <= after || !t.sees(&said.reaches) {
			continue
		}
		at := slices.IndexFunc(latest, func(other *total) bool {
			return other.Row == said.Row && other.Start == said.Start && other.Epoch == said.Epoch && other.Limit == said.Limit
		})
		switch {
		case at < 0:
			latest = append(latest, said)
		case latest[at].Stamp < said.Stamp || latest[at].Stamp == said.Stamp && latest[at].expires < said.expires:
			latest[at] = said
		}
	}
	for _, said := range latest {
		if said.expires > second {
			counts = append(counts, said.Count)
		}
	}
	return counts
}
