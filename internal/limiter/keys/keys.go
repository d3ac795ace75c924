package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// MaxIdentifierLen is the longest identifier in bytes; the shortest is 1.
const MaxIdentifierLen = 1024

// keyFormat is the first part of every hash; a change of the layout changes it.
const keyFormat = "ratelimitd.1"

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

	cache        *Cache // nil: every key is hashed anew
	fingerprints fingerprints
}

// CachedIn has cache remember what k makes, and returns k.
func (k *Keys) CachedIn(cache *Cache) *Keys {
	k.cache, k.fingerprints = cache, newFingerprints()
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
// preceded by its length.
func (k *Keys) Of(id Identifier) store.Key {
	if !k.isCached(id) {
		return k.hash(id)
	}
	return k.cache.of(k, id).key
}

// isCached reports whether the key of id is remembered.
func (k *Keys) isCached(id Identifier) bool { return k.cache != nil && len(id) <= maxCachedLen }

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
