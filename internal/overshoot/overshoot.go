// Package overshoot measures how far callers go past their limits: it follows each key from its first denial until the
// denying window ends, sums that by policy, and knows the worst keys of the last hour.
//
// It knows a caller by its store.Key only, never by its identifier. It knows neither how limits are decided nor how its
// figures are published.
package overshoot

import (
	"math"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// DefaultMaxKeys is a maximum of keys for New. 64 Ki keys of about 200 bytes take 13 MiB. More callers over their limit at
// the same time are an attack, whose size the counter of denials shows.
const DefaultMaxKeys = 1 << 16

// shardCount is a power of two, large enough that two denials rarely meet.
const shardCount = 16

// Table has the keys that are over their limit. It is safe for concurrent use; make one with New.
type Table struct {
	ended   func(Episode)
	maxKeys int // of one shard
	shards  [shardCount]shard
}

// Episode is an ended stay of a key past its limit.
type Episode struct {
	Policy   string
	Attempts int64   // calls beyond the limit, including the first denied one
	Times    float64 // requested units as a multiple of the limit; 0: the limit is 0
}

// Attempt is a call that went past a limit.
type Attempt struct {
	Tally *Tally // of the policy
	Key   store.Key
	Units int64 // that it asked for beyond the limit
	At    time.Time

	// Limit, in units, and Ends, the end of the denying window, are those of the limit that it went past. They are used
	// for a key's first attempt only.
	Limit int64
	Ends  time.Time
}

// Place is the place of an attempt in its episode.
type Place int

// The places of an attempt.
const (
	First   Place = iota // it opened the episode
	Further              // others came before it
	Dropped              // the table is full and the key is not in it
)

type shard struct {
	mu   sync.Mutex
	open map[store.Key]*episode
}

// episode is a stay of a key past its limit.
type episode struct {
	tally    *Tally
	attempts int64
	told     int64 // attempts that were added to the tally
	units    int64
	limit    int64
	ends     time.Time
}

// news are attempts of a key that are not in its tally yet.
type news struct {
	of       *Tally
	key      store.Key
	attempts int64
	over     *episode // the episode, if it has ended; nil: it goes on
}

// New returns an empty table for at most maxKeys keys at the same time. It calls ended with every ended episode; ended
// must not block, and may be called from several goroutines.
func New(ended func(Episode), maxKeys int) *Table {
	t := &Table{ended: ended, maxKeys: max(1, maxKeys/shardCount)}
	for i := range t.shards {
		t.shards[i].open = make(map[store.Key]*episode)
	}
	return t
}

// Count adds a to its key's episode, or to a new one if there is none. An episode of the key that is over by a.At ends
// first, as does one under another tally.
func (t *Table) Count(a Attempt) Place {
	sh := &t.shards[a.Key.Prefix()%shardCount]
	place, over := sh.count(&a, t.maxKeys)
	if over != nil {
		t.tell(over.untold(a.Key, true), a.At)
	}
	if place == Dropped {
		a.Tally.drop(&a)
	}
	return place
}

func (sh *shard) count(a *Attempt, maxKeys int) (place Place, over *episode) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.open[a.Key]
	if e != nil && e.tally == a.Tally && a.At.Before(e.ends) {
		e.attempts++
		e.units += a.Units
		return Further, nil
	}
	if e == nil && len(sh.open) >= maxKeys {
		return Dropped, nil
	}
	a.Tally.open.Add(1)
	sh.open[a.Key] = &episode{tally: a.Tally, attempts: 1, units: a.Units, limit: a.Limit, ends: a.Ends}
	return First, e
}

// Flush ends the episodes that are over by now, and updates the tallies.
func (t *Table) Flush(now time.Time) {
	for i := range t.shards {
		for _, n := range t.shards[i].flush(now) {
			t.tell(n, now)
		}
	}
}

// flush returns news for the tallies, and removes episodes that are over.
func (sh *shard) flush(now time.Time) (all []news) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, e := range sh.open {
		over := !now.Before(e.ends)
		if over {
			delete(sh.open, key)
		}
		if over || e.told < e.attempts {
			all = append(all, e.untold(key, over))
		}
	}
	return all
}

// untold returns the attempts of e that are not in its tally, and marks them as added.
func (e *episode) untold(key store.Key, over bool) news {
	n := news{of: e.tally, key: key, attempts: e.attempts - e.told}
	e.told = e.attempts
	if over {
		n.over = e
	}
	return n
}

func (t *Table) tell(n news, at time.Time) {
	n.of.hear(&n, at)
	if n.over != nil {
		t.ended(Episode{Policy: n.of.policy, Attempts: n.over.attempts, Times: n.over.times()})
	}
}

// times returns the requested units as a multiple of the limit: 2 for a key that asked for twice its limit. It is
// rounded up to hundredths, and 0 if the limit is 0.
func (e *episode) times() float64 {
	if e.limit == 0 {
		return 0
	}
	return math.Ceil(100+100*float64(e.units)/float64(e.limit)) / 100
}

// Len returns the number of keys in the table.
func (t *Table) Len() int {
	n := 0
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += len(t.shards[i].open)
		t.shards[i].mu.Unlock()
	}
	return n
}
