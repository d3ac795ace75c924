package overrides

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// prefixes are the overrides of one policy that have a prefix. The zero value is empty.
type prefixes struct {
	of      map[string]*live
	lengths []length // the longest first
}

// length is a length in bytes, and the number of prefixes that have it.
type length struct{ bytes, prefixes int }

// longest returns the override in force at now with the longest prefix of id, nil if there is none. p may be nil.
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

// put adds o, in place of another override of its prefix.
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

// drop removes the override of prefix, which must exist.
func (p *prefixes) drop(prefix string) {
	delete(p.of, prefix)
	i, _ := p.place(prefix)
	if p.lengths[i].prefixes--; p.lengths[i].prefixes == 0 {
		p.lengths = slices.Delete(p.lengths, i, i+1)
	}
}

// place returns the index in lengths of the length of prefix, or the index at which it would be inserted.
func (p *prefixes) place(prefix string) (i int, there bool) {
	return slices.BinarySearchFunc(p.lengths, len(prefix), func(l length, bytes int) int { return bytes - l.bytes })
}
