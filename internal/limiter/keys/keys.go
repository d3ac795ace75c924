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

// keyFormat is the first part of every hash. It must change with the layout of the hashed parts.
const keyFormat = "ratelimitd.1"

// prefixFormat is the first part of the hash of a prefix.
const prefixFormat = "ratelimitd.prefix.1"

// Identifier is a phone number, an address or an account that is counted. It prints as a placeholder, so that a log
// line or an error never shows it by mistake.
type Identifier string

// Format writes a placeholder for every verb.
func (Identifier) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[identifier]")) }

// HashKey is a secret with which identifiers are hashed.
type HashKey struct {
	ID     string // a part of every hash that is made with the secret
	Secret []byte // for HMAC-SHA-256; at least MinSecretLen bytes
}

// MinSecretLen is the shortest secret of a HashKey in bytes.
const MinSecretLen = 16

// Keyer makes keys. The zero Keyer hashes by plain SHA-256 in the empty namespace. An attacker that can try all possible
// identifiers can then find the ones behind the keys in the store.
type Keyer struct {
	Namespace string   // separates users of one store
	Secret    *HashKey // nil: plain SHA-256
}

// KeyersOf returns a Keyer of namespace for each of secrets. The first one makes the keys for writes, and the others further
// keys to read. Without secrets, the first one hashes by plain SHA-256.
func KeyersOf(namespace string, secrets []HashKey) (first Keyer, others []Keyer) {
	first.Namespace = namespace
	for i := range secrets {
		if i == 0 {
			first.Secret = &secrets[0]
			continue
		}
		others = append(others, Keyer{Namespace: namespace, Secret: &secrets[i]})
	}
	return first, others
}

// KeySpace has the parts of keys that depend on the policy. A policy that changes one of them counts from zero.
type KeySpace struct {
	Policy      string
	Guarantee   policy.Guarantee
	SerialLevel string // of keys of cells
	Scope       string // a data centre's name, or empty for the whole cluster
}

// Keys makes the keys of one space. It is safe for concurrent use; make one with
// Keyer.For.
type Keys struct {
	prefix [sha256.Size]byte
	macs   *sync.Pool // of hash.Hash; nil: plain SHA-256

	cache  *Cache    // nil: every key is hashed anew
	secret [2]uint64 // of fingerprints; no other Keys have it, so their fingerprints of the same identifier differ
}

// OfPrefix returns the key of a prefix of identifiers under a policy. Nothing is counted under this key. It does not depend
// on the hash key, as prefixes are stored in the clear.
func (k *Keyer) OfPrefix(policy, prefix string) store.Key {
	var b []byte
	for _, part := range []string{prefixFormat, k.Namespace, policy, prefix} {
		b = AppendPart(b, part)
	}
	return store.KeyFrom(sha256.Sum256(b))
}

// CachedIn makes k keep its keys in cache, and returns k.
func (k *Keys) CachedIn(cache *Cache) *Keys {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	k.cache, k.secret = cache, [2]uint64{binary.LittleEndian.Uint64(secret[:8]), binary.LittleEndian.Uint64(secret[8:])}
	return k
}

// For returns the keys of space. Their common part is hashed here, once: format version, hash key id, namespace,
// policy, guarantee, serial level and scope, each preceded by its length.
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

// Of returns the key of id: the hash of the space's common part, the length of id, and id. It takes the key from the cache if
// it is there.
func (k *Keys) Of(id Identifier) store.Key {
	if k.cache == nil || len(id) > maxCachedLen {
		return k.hash(id)
	}
	var mark fingerprint
	mark.r0, mark.r1 = sipHash(k.secret[0], k.secret[1], string(id))
	at := mark.r0 % keyCacheSets
	page := &k.cache.pages[at/keyPageSets]
	if page.Load() == nil {
		page.CompareAndSwap(nil, new(keyPage))
	}
	set := &page.Load()[at%keyPageSets]
	tags, tag := set.tags.Load(), mark.r1>>56|1
	for found := placesOf(tags, tag); found != 0; found &= found - 1 {
		if known := set.keys[bits.TrailingZeros64(found)/8].Load(); known != nil && known.mark == mark {
			return known.key
		}
	}
	made := &cachedKey{mark: mark, key: k.hash(id)}
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

// AppendPart appends to b the length of part and part, so that no two lists of parts give the same bytes.
func AppendPart(b []byte, part string) []byte {
	b = binary.AppendUvarint(b, uint64(len(part)))
	return append(b, part...)
}

// ID returns a number that identifies k's space.
func (k *Keys) ID() uint64 { return binary.BigEndian.Uint64(k.prefix[:8]) }

// Cache keeps the keys of identifiers, so that an identifier is not hashed for each call. It is set-associative: a set has
// seven keys, and a new key replaces one of them. It keeps no identifier. The zero Cache is empty. A Cache is safe for
// concurrent use.
type Cache struct {
	pages [keyCacheSets / keyPageSets]atomic.Pointer[keyPage] // each is allocated when a set of it is first used
}

// keyPage has as many sets as fit into 4 KiB.
type keyPage [keyPageSets]keySet

const (
	// keyCacheSets times keyCacheWays is the most keys that are kept: 73 bytes each with its place, 8 MiB in all.
	keyCacheSets = 1 << 14
	keyCacheWays = 7
	keyPageSets  = 64
	// maxCachedLen is the longest identifier, in bytes, whose key is kept.
	maxCachedLen = 64
)

// keySet has places for keys. Its tags are in one line of the processor's cache, so that a miss reads that line alone.
type keySet struct {
	tags atomic.Uint64 // a byte of its key's fingerprint for each place, the lowest for the first; 0: empty
	keys [keyCacheWays]atomic.Pointer[cachedKey]
}

// cachedKey is the key of an identifier. It is immutable.
type cachedKey struct {
	mark fingerprint // of the identifier
	key  store.Key
}

// fingerprint represents an identifier in this process by 128 bits of sipHash, so that no caller can choose two identifiers
// with the same fingerprint. Its highest byte, made odd, is its tag in the set.
type fingerprint struct{ r0, r1 uint64 }

// put stores made, which has this tag, in an empty place or, if tags shows none, in the place that its fingerprint selects.
// Two concurrent puts may leave a place with the tag of one and the key of the other. Neither key is then found until the
// place is used again.
func (s *keySet) put(made *cachedKey, tag, tags uint64) {
	place := int(made.mark.r1 % keyCacheWays)
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

// placesOf returns a number with the highest bit set in each of the first keyCacheWays bytes in which tags equals tag, and
// perhaps also in bytes above the lowest of these (Warren, "Hacker's Delight", 2nd ed., section 6-1).
func placesOf(tags, tag uint64) uint64 {
	const each, highest, places = 0x0101010101010101, 0x8080808080808080, 1<<(8*keyCacheWays) - 1
	differ := tags ^ each*tag
	return (differ - each) &^ differ & highest & places
}

// sipHash returns 128 bits of SipHash-1-3, a pseudorandom function: without the secret k0, k1 nobody can predict or choose its
// result (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012; the longer output is that of the authors'
// reference implementation). The hash tables of Rust and Python also rely on one round a word and three at the end. No
// attack is known that is better than trying all secrets.
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

// sipRound is one round of SipHash on its four words of state.
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
