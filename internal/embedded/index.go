package embedded

import (
	"iter"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// index finds entries by their keys. Keys are hashes, so their first eight bytes tell nearly
// any number of them apart, and are a third of the cost to look up. The zero index is empty,
// and keeps nothing until init.
type index struct {
	byPrefix map[uint64]*entry
	others   map[limiter.Key]*entry // whose prefix is another one's, too
}

func (x *index) init() { x.byPrefix = make(map[uint64]*entry) }

// of returns the entry of k, nil if there is none.
func (x *index) of(k *limiter.Key) *entry {
	if e := x.byPrefix[k.Prefix()]; e != nil && e.key == *k {
		return e
	}
	return x.others[*k]
}

// put keeps e, of whose key there is none.
func (x *index) put(e *entry) {
	if _, taken := x.byPrefix[e.key.Prefix()]; !taken {
		x.byPrefix[e.key.Prefix()] = e
		return
	}
	if x.others == nil {
		x.others = make(map[limiter.Key]*entry)
	}
	x.others[e.key] = e
}

// remove forgets e.
func (x *index) remove(e *entry) {
	if x.byPrefix[e.key.Prefix()] == e {
		delete(x.byPrefix, e.key.Prefix())
		return
	}
	delete(x.others, e.key)
}

// size returns how many there are.
func (x *index) size() int { return len(x.byPrefix) + len(x.others) }

// all returns all entries, in no order. They may be removed meanwhile.
func (x *index) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range x.byPrefix {
			if !yield(e) {
				return
			}
		}
		for _, e := range x.others {
			if !yield(e) {
				return
			}
		}
	}
}
