package limiter

import (
	"crypto/rand"
	"encoding/binary"
	"sync/atomic"
)

// keyCache remembers the keys of identifiers that come again, so that they are not hashed
// anew each time: of those whose fingerprints name the same slot, that of the last. It
// keeps no identifier. The zero keyCache is empty, and safe for concurrent use.
type keyCache struct {
	slots [keyCacheSlots]atomic.Pointer[cachedKey]
}

const (
	// keyCacheSlots is how many keys are remembered at most: 56 bytes each with its
	// slot, 1.75 MiB.
	keyCacheSlots = 1 << 15
	// maxCachedLen is the longest identifier, in bytes, whose key is remembered.
	maxCachedLen = 64
)

// cachedKey is the key of an identifier. It does not change.
type cachedKey struct {
	of  fingerprint
	key Key
}

// of returns the key that k makes of id, which is not longer than maxCachedLen.
func (c *keyCache) of(k *Keys, id Identifier) *cachedKey {
	mark := k.fingerprints.of(id)
	slot := &c.slots[mark.r0%keyCacheSlots]
	known := slot.Load()
	if known == nil || known.of != mark {
		known = &cachedKey{of: mark, key: k.hash(id)}
		slot.Store(known)
	}
	return known
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
