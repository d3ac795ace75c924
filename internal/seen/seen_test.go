package seen

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func hashes(seed uint64, n int) []Hash {
	rng := rand.New(rand.NewPCG(seed, 1))
	all := make([]Hash, n)
	for i := range all {
		all[i] = Hash{rng.Uint64(), rng.Uint64()}
	}
	return all
}

// TestSetHasAllThatWasAdded adds many more keys than a first layer takes, and asks for as many others.
func TestSetHasAllThatWasAdded(t *testing.T) {
	var s Set
	added, others := hashes(1, 15_000), hashes(2, 15_000)
	for _, h := range added {
		s.Add(h, time.Now().Add(time.Hour))
	}
	for _, h := range added {
		if !s.Has(h) {
			t.Fatal("a key that was added is not there")
		}
	}
	wrong := 0
	for _, h := range others {
		if s.Has(h) {
			wrong++
		}
	}
	if wrong > len(others)/50 {
		t.Errorf("%d of %d keys are said to be there that are not", wrong, len(others))
	}
}

// TestSetForgetsWhatIsOver holds that a layer is kept until the last of its keys is over, and not for ever.
func TestSetForgetsWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		first := hashes(1, 60)
		s.Add(first[0], time.Now().Add(time.Minute))
		for _, h := range first[1:] {
			s.Add(h, time.Now().Add(time.Second))
		}
		time.Sleep(30 * time.Second)
		for _, h := range hashes(2, 5000) {
			s.Add(h, time.Now().Add(time.Second))
		}
		if !s.Has(first[0]) {
			t.Error("a key was forgotten before it was over")
		}
		time.Sleep(time.Hour)
		for _, h := range hashes(3, 200_000) {
			s.Add(h, time.Now().Add(time.Second))
		}
		time.Sleep(time.Hour)
		if layers := s.Layers(); len(layers) > 0 {
			t.Errorf("%d layers are told that are over", len(layers))
		}
	})
}

// TestSetAbsorbs checks that keys that were handed over are there beside those added, and that nonsense is refused.
func TestSetAbsorbs(t *testing.T) {
	var from, to Set
	theirs, mine := hashes(1, 1000), hashes(2, 1000)
	until := time.Now().Add(time.Hour)
	for i := range theirs {
		from.Add(theirs[i], until)
		to.Add(mine[i], until)
	}
	handed := from.Layers()
	from.Add(hashes(3, 1)[0], until)
	if !to.Absorb(handed) {
		t.Fatal("layers of a set were refused")
	}
	for _, h := range append(theirs, mine...) {
		if !to.Has(h) {
			t.Fatal("a key is missing")
		}
	}
	for _, words := range []int{0, 3, 2 * lastWords} {
		if to.Absorb([]Layer{{Bits: make([]uint64, words)}}) {
			t.Errorf("a layer of %d words was taken", words)
		}
	}
	to.Add(hashes(4, 1)[0], until)
}

func BenchmarkSet(b *testing.B) {
	all := hashes(1, 1<<16)
	until := time.Now().Add(time.Hour)
	var s Set
	for _, h := range all {
		s.Add(h, until)
	}
	b.Run("add", func(b *testing.B) {
		for i := range b.N {
			s.Add(all[i%len(all)], until)
		}
	})
	other := hashes(2, 1<<16)
	b.Run("has", func(b *testing.B) {
		for i := range b.N {
			s.Has(other[i%len(other)])
		}
	})
}

// TestFullSetHasRoomAgain fills a set beyond its bounds, and holds that it neither loses a key then nor says
// of all others that they are there once those keys are over.
func TestFullSetHasRoomAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Set
		full := hashes(1, 200_000)
		for _, h := range full {
			s.Add(h, time.Now().Add(time.Minute))
		}
		words := 0
		for _, l := range s.Layers() {
			words += len(l.Bits)
		}
		if words > maxWords {
			t.Errorf("%d words, want %d at most", words, maxWords)
		}
		for _, h := range full {
			if !s.Has(h) {
				t.Fatal("a key was lost")
			}
		}
		time.Sleep(time.Hour)
		wrong, others := 0, hashes(2, 2000)
		for _, h := range others {
			if s.Has(h) {
				wrong++
			}
			s.Add(h, time.Now().Add(time.Minute))
		}
		if wrong > len(others)/20 {
			t.Errorf("%d of %d keys are said to be there that are not", wrong, len(others))
		}
	})
}
