package limiter

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestRememberedKeys are those that hashing makes, of several policies in one cache, with
// and without a secret, of more identifiers than it remembers, and at the same time.
func TestRememberedKeys(t *testing.T) {
	secret := &HashKey{ID: "2026", Secret: []byte(strings.Repeat("s", MinSecretLen))}
	var cache keyCache
	var all sync.WaitGroup
	for _, keyer := range []Keyer{{}, {Secret: secret}} {
		for _, policy := range []string{"a", "b"} {
			space := KeySpace{Policy: policy}
			plain, cached := keyer.For(space), keyer.For(space).cachedIn(&cache)
			all.Go(func() {
				for i := range 2 * keyCacheSlots {
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
	var cache keyCache
	keys := (&Keyer{}).For(KeySpace{Policy: "p"}).cachedIn(&cache)
	for length, remembered := range map[int]bool{1: true, maxCachedLen: true, maxCachedLen + 1: false} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			id := Identifier(strings.Repeat("a", length))
			key := keys.Of(id)
			planted := Key{sum: [KeySize]byte{1}}
			for i := range cache.slots {
				if known := cache.slots[i].Load(); known != nil && known.key == key {
					cache.slots[i].Store(&cachedKey{of: known.of, key: planted})
				}
			}
			if got := keys.Of(id) == planted; got != remembered {
				t.Errorf("remembered: %v, want %v", got, remembered)
			}
		})
	}
}

// BenchmarkKeyOf measures the keys of a thousand phone numbers, hashed and remembered.
func BenchmarkKeyOf(b *testing.B) {
	secret := &HashKey{ID: "2026", Secret: []byte(strings.Repeat("s", MinSecretLen))}
	for name, keyer := range map[string]Keyer{"plain": {}, "secret": {Secret: secret}} {
		for how, cache := range map[string]*keyCache{"hashed": nil, "remembered": new(keyCache)} {
			b.Run(name+"/"+how, func(b *testing.B) {
				keys := keyer.For(KeySpace{Policy: "p"}).cachedIn(cache)
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
