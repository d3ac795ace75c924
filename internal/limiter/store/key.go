package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Key is what counts are kept under: a hash of who counts what for whom. It is made
// by a Keyer, or read back from a store, so nothing that takes a Key can hold an
// identifier.
// The zero Key belongs to nobody.
type Key struct{ Sum [KeySize]byte }

// KeySize is the length of a key in bytes.
const KeySize = sha256.Size

// Bytes returns the key's hash. The caller may keep and change it.
func (k Key) Bytes() []byte { return append([]byte(nil), k.Sum[:]...) }

// KeyFrom returns the key with these bytes, for stores that read back what they were
// given. It hashes nothing: no identifier may go into it.
func KeyFrom(sum [KeySize]byte) Key { return Key{Sum: sum} }

// Prefix returns the first eight bytes as a number, evenly spread; stores choose
// shards by it.
func (k Key) Prefix() uint64 { return binary.BigEndian.Uint64(k.Sum[:8]) }

// Rest returns the sixteen bytes after the Prefix as two numbers, which tell keys apart that have the
// same one.
func (k Key) Rest() (a, b uint64) {
	return binary.BigEndian.Uint64(k.Sum[8:16]), binary.BigEndian.Uint64(k.Sum[16:24])
}

// Compare returns −1, 0 or +1 as k stands before other, is other, or stands after it, in the order of
// their bytes.
func (k Key) Compare(other Key) int { return bytes.Compare(k.Sum[:], other.Sum[:]) }

// AppendTo returns b with the key's bytes appended.
func (k Key) AppendTo(b []byte) []byte { return append(b, k.Sum[:]...) }

// String returns the start of the hash, enough to tell keys apart in a failed
// test and too little to look one up.
func (k Key) String() string { return hex.EncodeToString(k.Sum[:4]) + "…" }
