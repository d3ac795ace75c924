package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// caller is the state of one caller under one policy. With one limit it fits into a cache line.
type caller struct {
	requests        uint32
	denied, against uint32
	limits          []limitState  // of each limit of the policy
	only            [1]limitState // the memory of limits if the policy has one
}

// limitState is the state of one caller under one limit.
type limitState struct {
	used   int64  // after its last event; without any limit, once a higher number is tried for it
	peak   int64  // the most that it would ever have used without denials
	stage  uint8  // number of the limit's trials that have begun for it
	beyond bool   // it is denied with any number
	denied uint32 // a bit for each trial that has denied it
}

// callers are the callers of one policy. Once there are more than maxSampled, half of them are forgotten, by their hash.
// Those that are left are a sample, in which each stands for weight callers.
type callers struct {
	index  map[uint64]*caller
	limits int
	level  uint
}

// maxSampled is the maximum of callers of a policy that are kept. They take 100 MB with one limit, and a share of them is
// exact to a tenth of a percent.
const maxSampled = 1 << 20

func newCallers(limits int) *callers {
	return &callers{index: make(map[uint64]*caller), limits: limits}
}

// weight returns the number of callers that each of the sample stands for.
func (c *callers) weight() int64 { return 1 << c.level }

// of returns the caller with this hash, which it makes if needed; nil if the sample leaves it out.
func (c *callers) of(hash uint64) *caller {
	if hash&(1<<c.level-1) != 0 {
		return nil
	}
	if known := c.index[hash]; known != nil {
		return known
	}
	if len(c.index) >= maxSampled {
		c.level++
		for hash := range c.index {
			if hash&(1<<c.level-1) != 0 {
				delete(c.index, hash)
			}
		}
		return c.of(hash)
	}
	made := new(caller)
	if made.limits = made.only[:]; c.limits != 1 {
		made.limits = make([]limitState, c.limits)
	}
	c.index[hash] = made
	return made
}

// sum returns the number of callers that counts accepts.
func (c *callers) sum(counts func(*caller) bool) (n int64) {
	for _, known := range c.index {
		if counts(known) {
			n += c.weight()
		}
	}
	return n
}

// peaks returns the peaks of all callers under a limit, in order. Each is the lowest number that denies its caller nothing.
func (c *callers) peaks(limit int) []int64 {
	all := make([]int64, 0, len(c.index))
	for _, known := range c.index {
		if known.requests == 0 {
			continue
		}
		if state := &known.limits[limit]; state.beyond {
			all = append(all, math.MaxInt64)
		} else {
			all = append(all, state.peak)
		}
	}
	slices.Sort(all)
	return all
}

// Hit is a caller that was denied.
type Hit struct {
	Identifier string // in its canonical form
	Hash       uint64 // of the identifier, with a key of this replay
	Requests   int64  // since the first denial
	Denied     int64
	First      store.Instant // of the first denial
	Last       store.Instant // of the last denial
}

// hits are the callers that are denied most often. Once there are more than maxHits, the half with the fewest denials is
// forgotten.
type hits struct {
	index   map[uint64]*Hit
	trimmed bool
}

// maxHits is the maximum of denied callers that are kept. They take 20 MB with identifiers of 40 bytes.
const maxHits = 1 << 17

func (h *hits) note(s *subject, at store.Instant) {
	hit := h.index[s.hash]
	if hit == nil {
		if !s.denied() {
			return
		}
		if h.index == nil {
			h.index = make(map[uint64]*Hit)
		}
		if len(h.index) >= maxHits {
			h.trim()
		}
		hit = &Hit{Identifier: s.id, Hash: s.hash, First: at}
		h.index[s.hash] = hit
	}
	hit.Requests++
	if s.denied() {
		hit.Denied++
		hit.Last = at
	}
}

// trim forgets the half with the fewest denials.
func (h *hits) trim() {
	h.trimmed = true
	for _, hit := range h.top(math.MaxInt)[maxHits/2:] {
		delete(h.index, hit.Hash)
	}
}

// top returns the n callers that were denied most often.
func (h *hits) top(n int) []*Hit {
	all := make([]*Hit, 0, len(h.index))
	for _, hit := range h.index {
		all = append(all, hit)
	}
	slices.SortFunc(all, func(a, b *Hit) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.First, b.First), cmp.Compare(a.Identifier, b.Identifier))
	})
	return all[:min(n, len(all))]
}
