package load

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	shared       = 100_000 // keys that are asked for more than once have numbers below
	zipfExponent = 1.1
	attackers    = 100 // of the distribution attack
	attackShare  = 90  // percent of its requests that are theirs
)

// Keys is a distribution of requests over keys.
type Keys struct {
	name string
	// primed are how many keys, from number 0, are to be at their limit before anything is measured.
	primed uint64
	source func(random *rand.Rand, unique func() uint64) func() uint64
}

// String returns the distribution's name.
func (k Keys) String() string { return k.name }

// Distributions are those there are.
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

// ParseKeys returns the distribution of that name.
func ParseKeys(name string) (Keys, error) {
	for _, k := range Distributions() {
		if k.name == name {
			return k, nil
		}
	}
	return Keys{}, fmt.Errorf("there is no distribution %q; there are %v", name, Distributions())
}

// of returns worker's share of the keys, from a seed: the same ones each time, unique ones never another worker's.
func (k Keys) of(seed uint64, worker, workers int) func() uint64 {
	next := uint64(shared + worker)
	unique := func() uint64 {
		key := next
		next += uint64(workers)
		return key
	}
	return k.source(rand.New(rand.NewPCG(seed, uint64(worker))), unique)
}

// tally counts what was asked for each key, whether measured or not.
type tally struct {
	asked  [shared]atomic.Int64
	unique atomic.Int64
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

// allowed returns between which bounds the number of allowed requests must be, if the first primed keys were at their
// limit before, and all took no longer than elapsed. The upper bound is that of buckets that refill all the while, and
// one unit of rounding; limits of windows keep it too. Of each key so many units may have been counted ahead, and so denied.
func (t *tally) allowed(primed uint64, limit, ahead int64, window, elapsed time.Duration) (low, high int64) {
	refilled := int64(float64(limit)*float64(elapsed)/float64(window)) + 1
	low, high = t.unique.Load(), t.unique.Load()
	for key := range t.asked {
		asked := t.asked[key].Load()
		if uint64(key) < primed {
			high += min(asked, refilled)
			continue
		}
		low += min(asked, limit-ahead)
		high += min(asked, limit+refilled)
	}
	return low, high
}
