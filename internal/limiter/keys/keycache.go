package keys

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Cache remembers the keys of identifiers that come again, so that they are not hashed
// anew each time: seven of those whose fingerprints name the same set, of more some that came
// late. It keeps no identifier. The zero Cache is empty, and safe for concurrent use.
type Cache struct {
	sets [keyCacheSets]keySet
}

const (
	// keyCacheSets times keyCacheWays is how many keys are remembered at most: 73 bytes each
	// with its place, 8 MiB in all.
	keyCacheSets = 1 << 14
	keyCacheWays = 7
	// maxCachedLen is the longest identifier, in bytes, whose key is remembered.
	maxCachedLen = 64
)

// keySet is places for keys in one line of the processor's cache, so that a key that is not
// there is known not to be by that line alone.
type keySet struct {
	tags atomic.Uint64 // a byte for each place, the lowest for the first: of its key's fingerprint; 0: it is empty
	keys [keyCacheWays]atomic.Pointer[cachedKey]
}

// cachedKey is the key of an identifier. It does not change.
type cachedKey struct {
	of  fingerprint
	key store.Key
}

// of returns the key that k makes of id, which is not longer than maxCachedLen.
func (c *Cache) of(k *Keys, id Identifier) *cachedKey {
	mark := k.fingerprints.of(id)
	set := &c.sets[mark.r0%keyCacheSets]
	tags := set.tags.Load()
	for found := placesOf(tags, mark.tag()); found != 0; found &= found - 1 {
		if known := set.keys[bits.TrailingZeros64(found)/8].Load(); known != nil && known.of == mark {
			return known
		}
	}
	made := &cachedKey{of: mark, key: k.hash(id)}
	set.put(made, tags)
	return made
}

// put makes room for made in a place that is empty or, where tags says there is none, in one
// that its fingerprint names. Two at the same time may leave a place with the tag of one and the
// key of the other, where neither is found until it is taken.
func (s *keySet) put(made *cachedKey, tags uint64) {
	place := int(made.of.r1 % keyCacheWays)
	if empty := placesOf(tags, 0); empty != 0 {
		place = bits.TrailingZeros64(empty) / 8
	}
	s.keys[place].Store(made)
	for {
		tags, shift := s.tags.Load(), 8*place
		if s.tags.CompareAndSwap(tags, tags&^(0xff<<shift)|made.of.tag()<<shift) {
			return
		}
	}
}

// placesOf returns the highest bit of each of keyCacheWays bytes of tags that is tag, and perhaps
// of others above the lowest that is (Warren, "Hacker's Delight", 2nd ed., section 6-1).
func placesOf(tags, tag uint64) uint64 {
	const each, highest, places = 0x0101010101010101, 0x8080808080808080, 1<<(8*keyCacheWays) - 1
	differ := tags ^ each*tag
	return (differ - each) &^ differ & highest & places
}

// fingerprint is what an identifier is known by in this process: 128 bits of sipHash, so
// that nobody can choose two identifiers that are taken for each other.
type fingerprint struct{ r0, r1 uint64 }

// tag is the part of it that its keySet has of it, 1 to 255.
func (f fingerprint) tag() uint64 { return f.r1>>56 | 1 }

// fingerprints makes those of one Keys: its secret is of this Keys alone, so that the same
// identifier has others under another.
type fingerprints struct{ k0, k1 uint64 }

func newFingerprints() fingerprints {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	return fingerprints{binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])}
}

func (f fingerprints) of(id Identifier) fingerprint {
	r0, r1 := sipHash(f.k0, f.k1, string(id))
	return fingerprint{r0, r1}
}
