package load

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	shared       = 100_000 // keys that are used more than once have smaller numbers
	zipfExponent = 1.1
	attackers    = 100 // of the distribution attack
	attackShare  = 90  // percent of its requests that are for them
)

// Keys is a distribution of requests over keys.
type Keys struct {
	name string
	// primed is how many keys, from number 0, must be at their limit before the measurement.
	primed uint64
	source func(random *rand.Rand, unique func() uint64) func() uint64
}

// String returns the distribution's name.
func (k Keys) String() string { return k.name }

// Distributions are all distributions.
func Distributions() []Keys {
	return []Keys{
		{name: "zipf", source: func(random *rand.Rand, _ func() uint64) func() uint64 {
			return rand.NewZipf(random, zipfExponent, 1, shared-1).Uint64
		}},
		{name: "unique", source: func(_ *rand.Rand, unique func() uint64) func() uint64 { return unique }},
		{name: "hot", source: func(*rand.Rand, func() uint64) func() uint64 { return func() uint64 { return 0 } }},
		{name: "attack", primed: attackers, source: attack},
	}
}

func attack(random *rand.Rand, unique func() uint64) func() uint64 {
	return func() uint64 {
		if random.Uint64N(100) < attackShare {
			return random.Uint64N(attackers)
		}
		return unique()
	}
}

// ParseKeys returns the distribution with this name.
func ParseKeys(name string) (Keys, error) {
	for _, k := range Distributions() {
		if k.name == name {
			return k, nil
		}
	}
	return Keys{}, fmt.Errorf("there is no distribution %q; the distributions are %v", name, Distributions())
}

// of returns worker's keys, from a seed: the same ones each time. Unique keys belong to one worker.
func (k Keys) of(seed uint64, worker, workers int) func() uint64 {
	next := uint64(shared + worker)
	unique := func() uint64 {
		key := next
		next += uint64(workers)
		return key
	}
	return k.source(rand.New(rand.NewPCG(seed, uint64(worker))), unique)
}

// tally counts the calls of each key and their decisions, including those outside the measurement.
type tally struct {
	asked, allowed, denied [shared]atomic.Int64
	unique                 atomic.Int64
	wrong                  atomic.Int64 // denials among the first calls of a key, up to its limit
}

func (t *tally) add(keys []uint64) {
	for _, key := range keys {
		if key < shared {
			t.asked[key].Add(1)
		} else {
			t.unique.Add(1)
		}
	}
}

// saw notes the outcome of one call for key, if the first primed keys were at their limit before. A denial is wrong if
// fewer of the key's calls than the limit were not denied: only those can have been allowed before.
func (t *tally) saw(key uint64, o Outcome, primed uint64, limit int64) {
	switch {
	case key >= shared:
		t.wrong.Add(o.Denied) // its only call
	case o.Allowed > 0:
		t.allowed[key].Add(1)
	case o.Denied > 0:
		denied := t.denied[key].Add(1) // before asked is read, so that asked can only be too large
		if key >= primed && t.asked[key].Load()-denied < limit {
			t.wrong.Add(1)
		}
	}
}

// bounds returns the bounds of the number of allowed requests, if the first primed keys were at their
// limit before, and all took no longer than elapsed. The upper bound is that of buckets that refill continuously, plus
// one unit for rounding; limits of windows are also within it.
func (t *tally) bounds(primed uint64, limit int64, window, elapsed time.Duration) (low, high int64) {
	refilled := int64(float64(limit)*float64(elapsed)/float64(window)) + 1
	low, high = t.unique.Load(), t.unique.Load()
	for key := range t.asked {
		asked := t.asked[key].Load()
		if uint64(key) < primed {
			high += min(asked, refilled)
			continue
		}
		low += min(asked, limit)
		high += min(asked, limit+refilled)
	}
	return low, high
}

// over returns how many calls were allowed beyond the limit of their key and the units that it frees in elapsed: a
// bucket and the estimate of a sliding tail free limit units a window. A log with a longer window frees none.
func (t *tally) over(primed uint64, limit int64, window, elapsed time.Duration) (sum int64) {
	most := limit + int64(float64(limit)*float64(elapsed)/float64(window))
	for key := range t.allowed {
		allowed := t.allowed[key].Load()
		if uint64(key) < primed {
			allowed += limit
		}
		sum += max(0, allowed-most)
	}
	return sum
}
