package overshoot

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Tally has the calls past the limits of a policy since it began. It is safe for concurrent use; make one with
// NewTally.
type Tally struct {
	policy string
	since  time.Time
	open   atomic.Int64

	mu    sync.Mutex
	ended totals
	worst worst
}

// totals are the sums over some episodes, and over calls in none.
type totals struct {
	attempts   int64
	units      int64
	dropped    int64 // attempts that are in no episode
	perEpisode spread
	times      spread
}

// Report is the state of a Tally at an instant.
type Report struct {
	Since    time.Time
	Attempts int64 // beyond the limit
	Units    int64 // that they asked for
	Episodes int64 // stays of a key past its limit, including current ones
	Open     int64 // keys that are over their limit
	Dropped  int64 // attempts that are in no episode, because the table was full

	PerEpisode Spread // attempts of an episode
	Times      Spread // requested units of an episode as a multiple of the limit; none under a limit of 0

	WorstSince time.Time
	Worst      []Heavy // keys with the most attempts since then, the worst first
	Unlisted   int64   // no other key has more attempts since then
}

// Heavy is a key that is often past its limit.
type Heavy struct {
	Key      store.Key
	Attempts int64 // at least so many
	Error    int64 // and at most so many more
}

// NewTally returns the tally of a policy that begins now.
func NewTally(policy string, now time.Time) *Tally {
	return &Tally{
		policy: policy, since: now, ended: newTotals(), worst: worst{began: now},
	}
}

func newTotals() totals {
	return totals{perEpisode: newSpread(attemptBounds), times: newSpread(timesBounds)}
}

// Open returns the number of keys that are over their limit.
func (t *Tally) Open() int64 { return t.open.Load() }

// hear adds news of an episode, and the whole episode once it is over.
func (t *Tally) hear(n *news, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.worst.add(n.key, n.attempts, at)
	if n.over != nil {
		t.open.Add(-1)
		t.ended.add(n.over)
	}
}

// drop adds an attempt that is in no episode.
func (t *Tally) drop(a *Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended.attempts++
	t.ended.dropped++
	t.ended.units += a.Units
	t.worst.add(a.Key, 1, a.At)
}

func (s *totals) add(e *episode) {
	s.attempts += e.attempts
	s.units += e.units
	s.perEpisode.add(float64(e.attempts))
	if e.limit > 0 {
		s.times.add(e.times())
	}
}

// Report updates tally and returns its state, with the top worst keys. Episodes that begin or end meanwhile may be
// missing.
func (t *Table) Report(tally *Tally, top int, now time.Time) Report {
	t.Flush(now)
	sums, r := tally.past(top, now)
	for i := range t.shards {
		r.Open += t.shards[i].addOpen(tally, &sums)
	}
	r.Attempts, r.Units, r.Dropped = sums.attempts, sums.units, sums.dropped
	r.Episodes = sums.perEpisode.total
	r.PerEpisode, r.Times = sums.perEpisode.show(), sums.times.show()
	return r
}

// past returns a copy of the sums over ended episodes, and the worst keys.
func (t *Tally) past(top int, now time.Time) (totals, Report) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sums := t.ended
	sums.perEpisode, sums.times = sums.perEpisode.clone(), sums.times.clone()
	r := Report{Since: t.since}
	r.Worst, r.Unlisted, r.WorstSince = t.worst.top(top, now)
	if r.WorstSince.Before(t.since) {
		r.WorstSince = t.since
	}
	return sums, r
}

// addOpen adds the current episodes of tally to sums, and returns their number.
func (sh *shard) addOpen(tally *Tally, sums *totals) (n int64) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for _, e := range sh.open {
		if e.tally == tally {
			sums.add(e)
			n++
		}
	}
	return n
}
