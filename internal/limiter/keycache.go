package limiter

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// keyCache remembers the keys of identifiers that come again, so that they are not hashed
// anew each time: of those whose fingerprints name the same two slots, two that came late. It
// keeps no identifier. The zero keyCache is empty, and safe for concurrent use.
type keyCache struct {
	slots [keyCacheSlots]atomic.Pointer[cachedKey]
}

const (
	// keyCacheSlots is how many keys are remembered at most: 72 bytes each with its slot, and
	// 80 for a denial, 10 MiB in all.
	keyCacheSlots = 1 << 16
	// maxCachedLen is the longest identifier, in bytes, whose key is remembered.
	maxCachedLen = 64
)

// cachedKey is the key of an identifier, which does not change, and what is known of it.
type cachedKey struct {
	of   fingerprint
	key  Key
	full atomic.Pointer[fullKey] // nil: it may have room
}

// of returns the key that k makes of id, which is not longer than maxCachedLen.
func (c *keyCache) of(k *Keys, id Identifier) *cachedKey {
	mark := k.fingerprints.of(id)
	first, second := &c.slots[mark.r0%keyCacheSlots], &c.slots[mark.r0%keyCacheSlots^1]
	known, other := first.Load(), (*cachedKey)(nil)
	if known != nil && known.of == mark {
		return known
	}
	if other = second.Load(); other != nil && other.of == mark {
		return other
	}
	made := &cachedKey{of: mark, key: k.hash(id)}
	if known == nil || other != nil && mark.r1%2 == 0 {
		first.Store(made)
	} else {
		second.Store(made)
	}
	return made
}

// fingerprint is what an identifier is known by in this process: 128 bits of sipHash, so
// that nobody can choose two identifiers that are taken for each other.
type fingerprint struct{ r0, r1 uint64 }

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
