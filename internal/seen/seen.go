// Package seen remembers the keys that have counts, so that an owner need not read a new key from the store. A set errs on
// one side only: for less than one key in fifty that was never added it reports that it was, and the key is read.
package seen

import (
	"slices"
	"sync"
	"time"
)

// Hash is a key, or sixteen bytes of one, each bit of it as likely as the other.
type Hash struct{ A, B uint64 }

// Set is a set of keys, each of which is in it until it is over. It is a Bloom filter (1970) in layers,
// each four times as large as the one before, as in "Scalable Bloom Filters" by Almeida and others (2007).
// The zero Set is empty. It is safe for concurrent use.
type Set struct {
	mu     sync.RWMutex
	layers []Layer // additions go to the last one
}

// Layer is a part of a set. It is forgotten as a whole.
type Layer struct {
	Bits  []uint64  // a power of two of them
	Room  int       // how many keys may be added before another layer is
	Until time.Time // when all of its keys are over
}

const (
	bitsOfKey  = 14 // and
	probes     = 9  // of each key: one in 900 is said to be in a full layer that is not
	firstWords = 8  // of a layer: 36 keys
	lastWords  = 1 << 9
	maxWords   = 1 << 13 // of all layers, 64 KiB for 37,000 keys; beyond, the last one takes more than it has room for
)

// Add puts h into s until then.
func (s *Set) Add(h Hash, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.layers); n == 0 || s.layers[n-1].Room <= 0 {
		s.grow()
	}
	last := &s.layers[len(s.layers)-1]
	if until.After(last.Until) {
		last.Until = until
	}
	if last.add(h) {
		last.Room--
	}
}

// grow forgets the layers that are over, and adds another one if it may.
func (s *Set) grow() {
	now := time.Now()
	s.layers = slices.DeleteFunc(s.layers, func(l Layer) bool { return !l.Until.After(now) })
	words, all := firstWords, 0
	for _, l := range s.layers {
		words, all = max(words, min(4*len(l.Bits), lastWords)), all+len(l.Bits)
	}
	if all+words <= maxWords || len(s.layers) == 0 {
		s.layers = append(s.layers, Layer{Bits: make([]uint64, words), Room: words * 64 / bitsOfKey})
	}
}

// Has reports whether h may be in s.
func (s *Set) Has(h Hash) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := len(s.layers) - 1; i >= 0; i-- {
		if s.layers[i].has(h) {
			return true
		}
	}
	return false
}

// Layers returns the present content of s. Later additions to s do not change it.
func (s *Set) Layers() []Layer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	now := time.Now()
	var all []Layer
	for _, l := range s.layers {
		if l.Until.After(now) {
			l.Bits = append([]uint64(nil), l.Bits...)
			all = append(all, l)
		}
	}
	return all
}

// Absorb adds all that is in layers, which are the set's own from now on. A layer that is not one is
// refused, and none is added.
func (s *Set) Absorb(layers []Layer) bool {
	for _, l := range layers {
		if n := len(l.Bits); n == 0 || n&(n-1) != 0 || n > lastWords {
			return false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.layers = append(layers[:len(layers):len(layers)], s.layers...)
	return true
}

func (l *Layer) add(h Hash) (added bool) {
	mask := uint64(len(l.Bits)*64 - 1)
	for i := range uint64(probes) {
		bit := (h.A + i*(h.B|1)) & mask
		word, of := &l.Bits[bit/64], uint64(1)<<(bit%64)
		added = added || *word&of == 0
		*word |= of
	}
	return added
}

func (l *Layer) has(h Hash) bool {
	mask := uint64(len(l.Bits)*64 - 1)
	for i := range uint64(probes) {
		bit := (h.A + i*(h.B|1)) & mask
		if l.Bits[bit/64]&(1<<(bit%64)) == 0 {
			return false
		}
	}
	return true
}
