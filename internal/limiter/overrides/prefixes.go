package overrides

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// prefixes are the overrides of one policy that are of a prefix each. The zero value is none.
type prefixes struct {
	of      map[string]*live
	lengths []length // the longest first
}

// length is how many prefixes have a length in bytes.
type length struct{ bytes, prefixes int }

// longest returns the override of the longest prefix that id begins with and that is in force at now; nil: none. A nil p
// has none.
func (p *prefixes) longest(id string, now store.Instant) *live {
	if p == nil {
		return nil
	}
	for _, l := range p.lengths {
		if l.bytes > len(id) {
			continue
		}
		if found := p.of[id[:l.bytes]]; found != nil && found.Until > now {
			return found
		}
	}
	return nil
}

// put adds o, or replaces the one of its prefix.
func (p *prefixes) put(o *live) {
	if p.of == nil {
		p.of = make(map[string]*live)
	}
	if p.of[o.Prefix] == nil {
		i, there := p.place(o.Prefix)
		if !there {
			p.lengths = slices.Insert(p.lengths, i, length{bytes: len(o.Prefix)})
		}
		p.lengths[i].prefixes++
	}
	p.of[o.Prefix] = o
}

// drop removes the override of prefix, which is there.
func (p *prefixes) drop(prefix string) {
	delete(p.of, prefix)
	i, _ := p.place(prefix)
	if p.lengths[i].prefixes--; p.lengths[i].prefixes == 0 {
		p.lengths = slices.Delete(p.lengths, i, i+1)
	}
}

// place returns where the length of prefix is among lengths, or belongs.
func (p *prefixes) place(prefix string) (i int, there bool) {
	return slices.BinarySearchFunc(p.lengths, len(prefix), func(l length, bytes int) int { return bytes - l.bytes })
}
