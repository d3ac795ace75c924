package embedded

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestIndexIsAMap holds an index to what a map of keys does, with many keys that share their
// first eight bytes.
func TestIndexIsAMap(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var x index
	x.init()
	want := make(map[store.Key]*entry)
	for i := range 20_000 {
		var sum [store.KeySize]byte
		sum[7], sum[31] = byte(rnd.IntN(8)), byte(rnd.IntN(8))
		k := store.KeyFrom(sum)
		switch found := x.find(&k); {
		case found != want[k]:
			t.Fatalf("step %d: %p for %v, want %p (seed %d)", i, found, sum, want[k], seed)
		case found == nil:
			e := x.add(k, false)
			if e.expires != 0 || e.key != k {
				t.Fatalf("step %d: a new entry is %+v (seed %d)", i, *e, seed)
			}
			e.expires = 1
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

// TestNextVisitsAll holds next to coming by every entry once before it comes by one again.
func TestNextVisitsAll(t *testing.T) {
	const entries = 3*slabSize + 1
	var x index
	x.init()
	for i := range entries {
		x.add(keyOf(i), false)
	}
	for i := 0; i < entries; i += 2 {
		k := keyOf(i)
		x.remove(x.find(&k))
	}
	for round := range 2 {
		seen := make(map[*entry]bool)
		for range x.size() {
			seen[x.next()] = true
		}
		if len(seen) != entries/2 {
			t.Errorf("round %d: %d entries were visited, want %d", round, len(seen), entries/2)
		}
	}
}

// TestIndexGivesMemoryBack holds an index to keeping no slab that has no entry, to using places
// that are free again, and to making what it needs when it has none.
func TestIndexGivesMemoryBack(t *testing.T) {
	const slabs = 5
	var x index
	x.init()
	for round := range 3 {
		for i := range slabs * slabSize {
			x.add(keyOf(i), true)
		}
		if len(x.slabs) != slabs {
			t.Fatalf("round %d: %d slabs, want %d", round, len(x.slabs), slabs)
		}
		for e := range x.all() {
			x.remove(e)
		}
		for n := range x.slabs {
			if x.slabs[n] != (slab{}) {
				t.Errorf("round %d: slab %d of no entries has memory", round, n)
			}
		}
	}
}

func keyOf(i int) store.Key {
	var sum [store.KeySize]byte
	binary.BigEndian.PutUint64(sum[:], uint64(i))
	return store.KeyFrom(sum)
}
