package embedded

import (
	"iter"
	"math/bits"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// index keeps entries, and finds them by their keys. Keys are hashes, so their first eight bytes
// tell nearly any number of them apart, and are a third of the cost to look up. The maps know
// places, not addresses: so the collector of garbage has nothing to do with them, and looks at a
// slab where it would look at each entry. The zero index is empty, and keeps nothing until init.
type index struct {
	byPrefix map[uint64]place
	others   map[store.Key]place // whose prefix is another one's, too
	slabs    []slab
	used     []uint64 // a bit for each place: it is an entry's
	roomy    []uint32 // those of used that have a place left
	hand     place    // where next goes on
}

// place is where an entry is: wordSize times the word of used, and which of the word's bits.
type place uint32

// slab is memory for the entries of some words of used. What nobody needs is nil.
type slab struct {
	entries *[slabSize]entry
	events  *[slabSize]store.Event // the first ones of their logs
}

const (
	wordSize  = 64
	slabWords = 4
	// slabSize is so many that the allocator gives whole pages for their entries, which begin where
	// lines of the processor's cache do.
	slabSize = slabWords * wordSize
)

func (x *index) init() { x.byPrefix = make(map[uint64]place) }

// find returns the entry of k, nil if there is none. It stays where it is until it is removed.
func (x *index) find(k *store.Key) *entry {
	if p, ok := x.byPrefix[k.Prefix()]; ok {
		if e := x.at(p); e.key == *k {
			return e
		}
	}
	if p, ok := x.others[*k]; ok {
		return x.at(p)
	}
	return nil
}

func (x *index) at(p place) *entry { return &x.slabs[p/slabSize].entries[p%slabSize] }

// add makes an entry of k, of which there is none. With a log it has memory for its first event.
func (x *index) add(k store.Key, log bool) *entry {
	p := x.take()
	s := &x.slabs[p/slabSize]
	if s.entries == nil {
		s.entries = new([slabSize]entry)
	}
	e := &s.entries[p%slabSize]
	e.key = k
	if log {
		if s.events == nil {
			s.events = new([slabSize]store.Event)
		}
		e.log.events = s.events[p%slabSize : p%slabSize : p%slabSize+1]
	}
	if _, taken := x.byPrefix[k.Prefix()]; !taken {
		x.byPrefix[k.Prefix()] = p
		return e
	}
	if x.others == nil {
		x.others = make(map[store.Key]place)
	}
	x.others[k] = p
	return e
}

// take takes a place that is not used.
func (x *index) take() place {
	if len(x.roomy) == 0 {
		for word := range uint32(slabWords) {
			x.roomy = append(x.roomy, uint32(len(x.used))+slabWords-1-word) // the first one last: that is taken from
		}
		x.used = append(x.used, make([]uint64, slabWords)...)
		x.slabs = append(x.slabs, slab{})
	}
	last := len(x.roomy) - 1
	word := x.roomy[last]
	bit := bits.TrailingZeros64(^x.used[word])
	if x.used[word] |= 1 << bit; ^x.used[word] == 0 {
		x.roomy = x.roomy[:last]
	}
	return place(word)*wordSize + place(bit)
}

// remove forgets e. Its memory is given back with that of the last one of its slab.
func (x *index) remove(e *entry) {
	p, ok := x.byPrefix[e.key.Prefix()]
	if ok && x.at(p) == e {
		delete(x.byPrefix, e.key.Prefix())
	} else {
		p = x.others[e.key]
		delete(x.others, e.key)
	}
	*e = entry{}
	word := p / wordSize
	if ^x.used[word] == 0 {
		x.roomy = append(x.roomy, uint32(word))
	}
	x.used[word] &^= 1 << (p % wordSize)
	n := p / slabSize
	if beside := x.used[n*slabWords : (n+1)*slabWords]; !slices.ContainsFunc(beside, func(used uint64) bool { return used != 0 }) {
		x.slabs[n] = slab{}
	}
}

// size returns how many there are.
func (x *index) size() int { return len(x.byPrefix) + len(x.others) }

// all returns all entries, in no order. They may be removed meanwhile.
func (x *index) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for word, used := range x.used {
			for ; used != 0; used &= used - 1 {
				if !yield(x.at(place(word*wordSize + bits.TrailingZeros64(used)))) {
					return
				}
			}
		}
	}
}

// next returns the entries one after the other, and begins again after the last. There is one.
func (x *index) next() *entry {
	for {
		p := x.hand
		if x.hand++; int(x.hand) >= wordSize*len(x.used) {
			x.hand = 0
		}
		if x.used[p/wordSize]>>(p%wordSize)&1 == 1 {
			return x.at(p)
		}
	}
}
