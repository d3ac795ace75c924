package keys

import (
	"encoding/binary"
	"math/bits"
)

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
