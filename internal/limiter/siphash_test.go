package limiter

import (
	"strings"
	"testing"
)

// TestSipHash holds sipHash against vectors of the reference implementation: of the key 00,
// 01, ..., 0f and of the texts that begin so.
func TestSipHash(t *testing.T) {
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
		r0, r1 := sipHash(0x0706050403020100, 0x0f0e0d0c0b0a0908, text.String()[:v.length])
		if r0 != v.r0 || r1 != v.r1 {
			t.Errorf("%d bytes: %016x %016x, want %016x %016x", v.length, r0, r1, v.r0, v.r1)
		}
	}
}
