package keys

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// MaxIdentifierLen is the longest identifier in bytes; the shortest is 1.
const MaxIdentifierLen = 1024

// keyFormat is the first part of every hash; a change of the layout changes it.
const keyFormat = "ratelimitd.1"

// prefixFormat is the first part of the hash of a prefix.
const prefixFormat = "ratelimitd.prefix.1"

// Identifier is who is counted: a phone number, an address, an account. It prints
// as a placeholder, so that one that strays into a log line or an error says
// nothing.
type Identifier string

// Format writes a placeholder, whatever the verb.
func (Identifier) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[identifier]")) }

// HashKey is a secret that identifiers are hashed with.
type HashKey struct {
	ID     string // part of every hash made with it
	Secret []byte // for HMAC-SHA-256; at least MinSecretLen bytes
}

// MinSecretLen is the shortest secret of a HashKey in bytes.
const MinSecretLen = 16

// Keyer makes keys. The zero Keyer hashes by plain SHA-256 in the empty namespace:
// whoever can list all identifiers can find theirs in the store.
type Keyer struct {
	Namespace string   // separates users of one store
	Secret    *HashKey // nil: plain SHA-256
}

// KeySpace is what a policy contributes to its keys. A policy that changes one of
// these starts counting anew.
type KeySpace struct {
	Policy      string
	Guarantee   policy.Guarantee
	SerialLevel string // under GuaranteeSerial only
	Scope       string // a data centre's name, or empty for the whole cluster
}

// Keys makes the keys of one space. It is safe for concurrent use; make one with
// Keyer.For.
type Keys struct {
	prefix [sha256.Size]byte
	macs   *sync.Pool // of hash.Hash; nil: plain SHA-256

	cache  *Cache    // nil: every key is hashed anew
	secret [2]uint64 // of fingerprints, of these Keys alone: the same identifier has others under another
}

// OfPrefix returns the key of all identifiers under a policy that begin with prefix. Nothing is counted under it. It is
// the same under every hash key, as prefixes are kept in the clear.
func (k *Keyer) OfPrefix(policy, prefix string) store.Key {
	var b []byte
	for _, part := range []string{prefixFormat, k.Namespace, policy, prefix} {
		b = AppendPart(b, part)
	}
	return store.KeyFrom(sha256.Sum256(b))
}

// CachedIn has cache remember what k makes, and returns k.
func (k *Keys) CachedIn(cache *Cache) *Keys {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	k.cache, k.secret = cache, [2]uint64{binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])}
	return k
}

// For returns the keys of space. What they have in common is hashed here, once:
// (format version, hash key id, namespace, policy, guarantee, serial level and scope), each
// preceded by its length.
func (k *Keyer) For(space KeySpace) *Keys {
	id := ""
	keys := new(Keys)
	if secret := k.Secret; secret != nil {
		id = secret.ID
		keys.macs = &sync.Pool{New: func() any { return hmac.New(sha256.New, secret.Secret) }}
	}
	var b []byte
	for _, part := range []string{keyFormat, id, k.Namespace, space.Policy, string(space.Guarantee), space.SerialLevel, space.Scope} {
		b = AppendPart(b, part)
	}
	keys.prefix = sha256.Sum256(b)
	return keys
}

// Of returns the key of id: the hash of what the space has in common and of id,
// preceded by its length. It is the one that the cache remembers, if it does.
func (k *Keys) Of(id Identifier) store.Key {
	if k.cache == nil || len(id) > maxCachedLen {
		return k.hash(id)
	}
	var mark fingerprint
	mark.r0, mark.r1 = sipHash(k.secret[0], k.secret[1], string(id))
	set := &k.cache.sets[mark.r0%keyCacheSets]
	tags, tag := set.tags.Load(), mark.r1>>56|1
	for found := placesOf(tags, tag); found != 0; found &= found - 1 {
		if known := set.keys[bits.TrailingZeros64(found)/8].Load(); known != nil && known.of == mark {
			return known.key
		}
	}
	made := &cachedKey{of: mark, key: k.hash(id)}
	set.put(made, tag, tags)
	return made.key
}

func (k *Keys) hash(id Identifier) store.Key {
	if k.macs != nil {
		return k.ofSecret(id)
	}
	var buf [sha256.BlockSize * 2]byte
	return store.KeyFrom(sha256.Sum256(AppendPart(append(buf[:0], k.prefix[:]...), string(id))))
}

func (k *Keys) ofSecret(id Identifier) store.Key {
	mac, _ := k.macs.Get().(hash.Hash)
	defer k.macs.Put(mac)
	mac.Reset()
	mac.Write(AppendPart(append([]byte(nil), k.prefix[:]...), string(id)))
	var sum [store.KeySize]byte
	mac.Sum(sum[:0])
	return store.KeyFrom(sum)
}

// AppendPart appends to b the length of part and part, so that no two lists of parts are one text.
func AppendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// ID returns what tells the space of k from others.
func (k *Keys) ID() uint64 { return binary.BigEndian.Uint64(k.prefix[:8]) }

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

// fingerprint is what an identifier is known by in this process: 128 bits of sipHash, so
// that nobody can choose two identifiers that are taken for each other. Its set has its highest byte as a tag, 1 to 255.
type fingerprint struct{ r0, r1 uint64 }

// put makes room for made, of tag, in a place that is empty or, where tags says there is none, in one
// that its fingerprint names. Two at the same time may leave a place with the tag of one and the
// key of the other, where neither is found until it is taken.
func (s *keySet) put(made *cachedKey, tag, tags uint64) {
	place := int(made.of.r1 % keyCacheWays)
	if empty := placesOf(tags, 0); empty != 0 {
		place = bits.TrailingZeros64(empty) / 8
	}
	s.keys[place].Store(made)
	for {
		tags, shift := s.tags.Load(), 8*place
		if s.tags.CompareAndSwap(tags, tags&^(0xff<<shift)|tag<<shift) {
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

// sipHash returns 128 bits of SipHash-1-3, a pseudorandom function: who does not know the
// secret k0, k1 can neither foresee nor choose what it returns (Aumasson and Bernstein,
// "SipHash: a fast short-input PRF", 2012; the longer output is that of its authors'
// reference implementation). One round a word and three at the end are what hash tables of
// Rust and Python trust, too; nothing better than trying all secrets is known against them.
func sipHash(k0, k1 uint64, text string) (r0, r1 uint64) {
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d^0xee
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	last := uint64(len(text)) << 56
	for ; len(text) >= 8; text = text[8:] {
		word := binary.LittleEndian.Uint64([]byte(text[:8]))
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^word)
		v0 ^= word
	}
	for i := range len(text) {
		last |= uint64(text[i]) << (8 * i)
	}
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^last)
	v0, v1, v2, v3 = sipRound(v0^last, v1, v2^0xee, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	r0 = v0 ^ v1 ^ v2 ^ v3
	v0, v1, v2, v3 = sipRound(v0, v1^0xdd, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	return r0, v0 ^ v1 ^ v2 ^ v3
}

// sipRound is what SipHash does with the four words that it works on.
func sipRound(v0, v1, v2, v3 uint64) (w0, w1, w2, w3 uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	return v0, v1, bits.RotateLeft64(v2, 32), v3
}
