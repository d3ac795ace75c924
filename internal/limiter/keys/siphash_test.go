package keys

import (
	"strings"
	"testing"
)

// sipByTheBook returns 128 bits of SipHash, of so many rounds a word and at the end, as its
// authors' reference implementation does: byte by byte.
func sipByTheBook(wordRounds, lastRounds int, k0, k1 uint64, text string) (r0, r1 uint64) {
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d^0xee
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	rounds := func(n int) {
		for range n {
			v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
		}
	}
	word := uint64(0)
	for i := range len(text) {
		word |= uint64(text[i]) << (8 * (i % 8))
		if i%8 == 7 {
			v3 ^= word
			rounds(wordRounds)
			v0, word = v0^word, 0
		}
	}
	word |= uint64(len(text)) << 56
	v3 ^= word
	rounds(wordRounds)
	v0 ^= word
	v2 ^= 0xee
	rounds(lastRounds)
	r0 = v0 ^ v1 ^ v2 ^ v3
	v1 ^= 0xdd
	rounds(lastRounds)
	return r0, v0 ^ v1 ^ v2 ^ v3
}

// TestSipHash holds sipHash against the book, and that, in its longer form, against vectors of
// the reference implementation: of the key 00, 01, ..., 0f and of the texts that begin so.
func TestSipHash(t *testing.T) {
	const k0, k1 = 0x0706050403020100, 0x0f0e0d0c0b0a0908
	var text strings.Builder
	for i := range 64 {
		text.WriteByte(byte(i))
	}
	for _, v := range []struct {
		length int
		r0, r1 uint64
	}{
		{0, 0xe6a825ba047f81a3, 0x930255c71472f66d},
		{1, 0x44af996bd8c187da, 0x45fc229b11597634},
		{7, 0x53c1dbd8beebf1a1, 0x3982f01fa64ab8c0},
		{8, 0x61f55862baa9623b, 0xb49714f364e2830f},
		{15, 0x11a8b03399e99354, 0xd9c3cf970fec087e},
		{16, 0xbb54b067caa4e26e, 0x77052385bf1533fd},
		{63, 0x4a83502f77d15051, 0x7cbd3f979a063e50},
	} {
		if r0, r1 := sipByTheBook(2, 4, k0, k1, text.String()[:v.length]); r0 != v.r0 || r1 != v.r1 {
			t.Errorf("SipHash-2-4 of %d bytes: %016x %016x, want %016x %016x", v.length, r0, r1, v.r0, v.r1)
		}
	}
	for length := range 65 {
		r0, r1 := sipHash(k0, k1, text.String()[:length])
		if want0, want1 := sipByTheBook(1, 3, k0, k1, text.String()[:length]); r0 != want0 || r1 != want1 {
			t.Errorf("%d bytes: %016x %016x, want %016x %016x", length, r0, r1, want0, want1)
		}
	}
}
