// Package overshoot measures by how much callers go past their limits: it counts
// the attempts of a key from its first denial until the denying window ends.
//
// It knows a caller by limiter.Key only, never who that is, and it knows nothing
// of how limits are decided or how its figures are published.
package overshoot

import (
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// DefaultMaxKeys is the MaxKeys of Options that give none: 64 Ki keys of about
// 150 bytes are 10 MiB, and more callers over their limit at the same time than
// that are an attack, whose size the counter of denials shows.
const DefaultMaxKeys = 1 << 16

// shardCount is a power of two, large enough that two denials rarely meet.
const shardCount = 16

// Options of a Table. The zero value keeps DefaultMaxKeys keys.
type Options struct {
	MaxKeys int // episodes kept at the same time; zero: DefaultMaxKeys
}

// Table holds the keys that are over their limit now. It is safe for concurrent
// use; make one with New.
type Table struct {
	ended   func(Episode)
	maxKeys int // of one shard
	shards  [shardCount]shard
}

// Episode is a stay of one key past its limit that is over.
type Episode struct {
	Policy   string
	Attempts int64 // calls beyond the limit, the first denied one included
}

// Attempt is a call that went past a limit.
type Attempt struct {
	Policy string
	Key    limiter.Key
	At     time.Time
	Ends   time.Time // when the window that denies is over; used for a key's first attempt only
}

// Place is what an attempt is in its episode.
type Place int

// The places of an attempt.
const (
	First   Place = iota // it opened the episode
	Further              // others came before it
	Dropped              // the table is full and the key is not in it
)

type shard struct {
	mu   sync.Mutex
	open map[limiter.Key]*episode
}

type episode struct {
	policy   string
	attempts int64
	ends     time.Time
}

// New returns an empty table that hands every episode that is over to ended, which
// must not block and may be called from several goroutines. A nil opts means the
// zero Options.
func New(ended func(Episode), opts *Options) *Table {
	maxKeys := DefaultMaxKeys
	if opts != nil && opts.MaxKeys > 0 {
		maxKeys = opts.MaxKeys
	}
	t := &Table{ended: ended, maxKeys: max(1, maxKeys/shardCount)}
	for i := range t.shards {
		t.shards[i].open = make(map[limiter.Key]*episode)
	}
	return t
}

// Count adds a to its key's episode, and opens one where there is none. An
// episode of the key that is over by a.At ends first.
func (t *Table) Count(a Attempt) Place {
	sh := &t.shards[a.Key.Prefix()%shardCount]
	place, over := sh.count(a, t.maxKeys)
	if over != nil {
		t.ended(over.finished())
	}
	return place
}

func (sh *shard) count(a Attempt, maxKeys int) (place Place, over *episode) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e := sh.open[a.Key]
	if e != nil && a.At.Before(e.ends) {
		e.attempts++
		return Further, nil
	}
	if e == nil && len(sh.open) >= maxKeys {
		return Dropped, nil
	}
	sh.open[a.Key] = &episode{policy: a.Policy, attempts: 1, ends: a.Ends}
	return First, e
}

// Flush ends the episodes that are over by now.
func (t *Table) Flush(now time.Time) {
	for i := range t.shards {
		for _, e := range t.shards[i].remove(now) {
			t.ended(e.finished())
		}
	}
}

func (sh *shard) remove(now time.Time) (over []*episode) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for key, e := range sh.open {
		if !now.Before(e.ends) {
			over = append(over, e)
			delete(sh.open, key)
		}
	}
	return over
}

// Len returns how many keys are over their limit and in the table.
func (t *Table) Len() int {
	n := 0
	for i := range t.shards {
		t.shards[i].mu.Lock()
		n += len(t.shards[i].open)
		t.shards[i].mu.Unlock()
	}
	return n
}

func (e *episode) finished() Episode { return Episode{Policy: e.policy, Attempts: e.attempts} }
