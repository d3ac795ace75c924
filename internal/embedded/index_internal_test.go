package embedded

import (
	"math/rand/v2"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestIndexIsAMap holds an index to what a map of keys does, with many keys that share their
// first eight bytes.
func TestIndexIsAMap(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var x index
	x.init()
	want := make(map[limiter.Key]*entry)
	for i := range 20_000 {
		var sum [limiter.KeySize]byte
		sum[7], sum[31] = byte(rnd.IntN(8)), byte(rnd.IntN(8))
		k := limiter.KeyFrom(sum)
		switch found := x.of(&k); {
		case found != want[k]:
			t.Fatalf("step %d: %p for %v, want %p (seed %d)", i, found, sum, want[k], seed)
		case found == nil:
			e := &entry{key: k}
			x.put(e)
			want[k] = e
		case rnd.IntN(2) == 0:
			x.remove(found)
			delete(want, k)
		}
		if x.size() != len(want) {
			t.Fatalf("step %d: %d entries, want %d (seed %d)", i, x.size(), len(want), seed)
		}
	}
	for e := range x.all() {
		if want[e.key] != e {
			t.Errorf("%v is there twice, or never was put", e.key)
		}
		delete(want, e.key)
	}
	if len(want) > 0 {
		t.Errorf("%d entries are not among all", len(want))
	}
}
