package keys

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestRememberedKeys are those that hashing makes, of several policies in one cache, with
// and without a secret, of more identifiers than it remembers, and at the same time.
func TestRememberedKeys(t *testing.T) {
	secret := &HashKey{ID: "2026", Secret: []byte(strings.Repeat("s", MinSecretLen))}
	var cache Cache
	var all sync.WaitGroup
	for _, keyer := range []Keyer{{}, {Secret: secret}} {
		for _, policy := range []string{"a", "b"} {
			space := KeySpace{Policy: policy}
			plain, cached := keyer.For(space), keyer.For(space).CachedIn(&cache)
			all.Go(func() {
				for i := range 2 * keyCacheSets * keyCacheWays {
					id := Identifier(strconv.Itoa(i/2) + strings.Repeat("x", i/2%(2*maxCachedLen))) // each twice
					if got, want := cached.Of(id), plain.Of(id); got != want {
						t.Errorf("%d bytes under %s: %v, want %v", len(id), policy, got, want)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

// TestKeysAreRemembered, those of the longest identifiers too, and by their fingerprints
// alone: what is hashed only once may be wrong for ever, and here it is.
func TestKeysAreRemembered(t *testing.T) {
	var cache Cache
	keys := (&Keyer{}).For(KeySpace{Policy: "p"}).CachedIn(&cache)
	for length, remembered := range map[int]bool{1: true, maxCachedLen: true, maxCachedLen + 1: false} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			id := Identifier(strings.Repeat("a", length))
			key := keys.Of(id)
			planted := store.KeyFrom([store.KeySize]byte{1})
			for i := range cache.pages {
				page := cache.pages[i].Load()
				if page == nil {
					continue
				}
				for set := range page {
					for place := range page[set].keys {
						at := &page[set].keys[place]
						if known := at.Load(); known != nil && known.key == key {
							at.Store(&cachedKey{mark: known.mark, key: planted})
						}
					}
				}
			}
			if got := keys.Of(id) == planted; got != remembered {
				t.Errorf("remembered: %v, want %v", got, remembered)
			}
		})
	}
}

// As many keys as a set has places for are remembered whatever their order, and one more
// takes the place of one.
func TestKeysOfOneSetAreRemembered(t *testing.T) {
	var cache Cache
	keys := (&Keyer{}).For(KeySpace{Policy: "p"}).CachedIn(&cache)
	var ids []Identifier
	for i := 0; len(ids) <= keyCacheWays; i++ {
		id := strconv.Itoa(i)
		if r0, _ := sipHash(keys.secret[0], keys.secret[1], id); r0%keyCacheSets == 0 {
			ids = append(ids, Identifier(id))
		}
	}
	remembered := func() (n int) {
		places := &cache.pages[0].Load()[0].keys
		for i := range places {
			if places[i].Load() != nil {
				n++
			}
		}
		return n
	}
	for i, id := range ids[:keyCacheWays] {
		keys.Of(id)
		if got := remembered(); got != i+1 {
			t.Fatalf("%d of %d keys are remembered", got, i+1)
		}
	}
	if made := testing.AllocsPerRun(10, func() {
		for _, id := range ids[:keyCacheWays] {
			keys.Of(id)
		}
	}); made != 0 {
		t.Errorf("%v keys of a set that has room for all were made anew", made)
	}
	last := ids[keyCacheWays]
	keys.Of(last)
	if made := testing.AllocsPerRun(10, func() { keys.Of(last) }); made != 0 {
		t.Error("the last is not remembered")
	}
}

// The first place of a tag is found, and no place of it missed.
func TestPlacesOf(t *testing.T) {
	for range 100_000 {
		tags, tag := uint64(0), uint64(rand.IntN(4))
		for range 8 {
			tags = tags<<8 | []uint64{0, 1, 2, 3, 0x80, 0x81, 0xff, rand.Uint64N(256)}[rand.IntN(8)]
		}
		found := placesOf(tags, tag)
		first := true
		for place := range keyCacheWays {
			is, says := tags>>(8*place)&0xff == tag, found>>(8*place)&0xff != 0
			if is && !says || first && is != says {
				t.Fatalf("%x in %x: %x", tag, tags, found)
			}
			first = first && !is
		}
		if found>>(8*keyCacheWays) != 0 {
			t.Fatalf("%x in %x: %x is past the last place", tag, tags, found)
		}
	}
}

// BenchmarkKeyOf measures the keys of a thousand phone numbers, hashed and remembered.
func BenchmarkKeyOf(b *testing.B) {
	secret := &HashKey{ID: "2026", Secret: []byte(strings.Repeat("s", MinSecretLen))}
	for name, keyer := range map[string]Keyer{"plain": {}, "secret": {Secret: secret}} {
		for how, cache := range map[string]*Cache{"hashed": nil, "remembered": new(Cache)} {
			b.Run(name+"/"+how, func(b *testing.B) {
				keys := keyer.For(KeySpace{Policy: "p"}).CachedIn(cache)
				ids := make([]Identifier, 1000)
				for i := range ids {
					ids[i] = Identifier("+49151" + strconv.Itoa(10_000_000+i))
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					keys.Of(ids[i%len(ids)])
				}
			})
		}
	}
}
