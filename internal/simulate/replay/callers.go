package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// caller is the state of one caller under one policy. With one limit it is in one line of the
// processor's cache.
type caller struct {
	requests        uint32
	denied, against uint32
	limits          []limitState  // of each limit of the policy
	only            [1]limitState // the memory of limits, if there is one
}

// limitState is how far a caller came under one limit.
type limitState struct {
	used   int64  // after its last event, while no higher limit is tried for it; then under none
	peak   int64  // the most that it ever had used, if nothing had been denied
	stage  uint8  // how many trials of the limit go on for it
	beyond bool   // it is denied whatever the limit's number
	denied uint32 // a bit for each trial that ever denied it
}

// callers are those of one policy. Once there are more than maxSampled of them, one half is
// forgotten, by a hash: the callers left are a sample of all, in which each stands for weight of them.
type callers struct {
	index  map[uint64]*caller
	limits int
	level  uint
}

// maxSampled is how many callers of a policy are kept: 100 MB, if it has one limit. A share of
// them is known to a tenth of a percent.
const maxSampled = 1 << 20

func newCallers(limits int) *callers {
	return &callers{index: make(map[uint64]*caller), limits: limits}
}

// weight returns how many callers each of the sample stands for.
func (c *callers) weight() int64 { return 1 << c.level }

// of returns the caller with this hash, made if it is not there; nil if it is not in the sample.
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

// sum returns the number of callers for which is returns true.
func (c *callers) sum(is func(*caller) bool) (n int64) {
	for _, known := range c.index {
		if is(known) {
			n += c.weight()
		}
	}
	return n
}

// peaks returns the peaks of all callers under a limit, in order: the lowest numbers that deny them nothing.
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
	Hash       uint64 // of it, with a key of this replay
	Requests   int64  // since it was denied first
	Denied     int64
	First      store.Instant // of the denials
	Last       store.Instant
}

// hits are the callers that are denied most often. Once there are more than maxHits, those that
// are denied least are forgotten.
type hits struct {
	index   map[uint64]*Hit
	trimmed bool
}

// maxHits is how many callers that were denied are kept: 20 MB, with identifiers of 40 bytes.
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

// trim forgets the half that was denied least.
func (h *hits) trim() {
	h.trimmed = true
	for _, hit := range h.top(math.MaxInt)[maxHits/2:] {
		delete(h.index, hit.Hash)
	}
}

// top returns the n that were denied most often.
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
