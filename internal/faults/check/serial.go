package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Bounds of the search for an order of calls. It is exponential in the calls whose
// outcome is unknown. A key has a handful of them in its life, so the search takes
// milliseconds.
const (
	decideWithin    = 10 * time.Second // for one key
	decideAllWithin = 5 * time.Minute  // for all keys, but at least leastPatience for each
	leastPatience   = 500 * time.Millisecond
)

// serial checks that there is an order of the calls of k, a bucket, each at a moment between its call and its answer,
// in which each was decided correctly, given the units before it.
//
// The date of a unit is known only within the tolerance. So the model accepts an answer that is
// right for some date: it admits units that fit beside all that certainly count, and denies units
// that may not fit beside all that may count.
func (c *checker) serial(k *key) {
	n := c.counting(k.policy)
	var calls []porcupine.Operation
	for _, u := range slices.Concat(k.units, k.checks) {
		if !u.mayCount && !u.answer.Decided() {
			continue // it changed no count
		}
		calls = append(calls, porcupine.Operation{Input: u, Call: int64(u.called), Return: int64(u.returned)})
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(n.bucketModel(), calls, max(leastPatience, min(decideWithin, decideAllWithin-c.searched)))
	c.searched += time.Since(began)
	switch result {
	case porcupine.Ok:
		c.f.Serial++
	case porcupine.Unknown:
		c.f.Undecided++
	case porcupine.Illegal:
		shown := append(callsOf(k.units), callsOf(k.checks)...)
		c.f.add(Violation{CheckSerial, k.String(), fmt.Sprintf("no order explains its %d calls", len(calls)), shown})
	}
}

// bucketState is the fill of a bucket at the time 0 if it had always drained: the
// least and the most, in parts of a unit.
type bucketState struct{ least, most int64 }

// bucketModel is the model of a bucket.
func (n *counting) bucketModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return bucketState{-int64(forever), -int64(forever)} },
		Step: func(state, input, _ any) (bool, any) {
			s, u := state.(bucketState), input.(*unit)
			least, most := max(0, s.least-n.drained(u.until)), max(0, s.most-n.drained(u.from))
			room := n.parts(n.policy.Capacity() - 1)
			right, counted := n.judge(u, n.ceil(least), n.ceil(most), least <= room, most > room)
			if counted {
				s.least = max(s.least, n.drained(u.from)) + n.parts(1)
				s.most = max(s.most, n.drained(u.until)) + n.parts(1)
			}
			return right, s
		},
	}
}

// judge reports whether u's answer is right if others use between least and most units, and whether u counts from then
// on. mayFit means that u may fit, and mayNot that it may not.
func (n *counting) judge(u *unit, least, most int64, mayFit, mayNot bool) (right, counts bool) {
	own := int64(0)
	switch {
	case u.first.Op == history.Check:
	case u.mustCount:
		own = 1
	case u.mayCount:
		return true, mayFit // or never, if it is last in the order
	}
	if len(u.answer.Used) > 0 && !u.answer.Replayed {
		used := u.answer.Used[0]
		right = used >= min(least+own, n.policy.Capacity()) && used <= most+own
	}
	if u.answer.Status == 429 {
		return right && mayNot, false
	}
	return right && (mayFit || u.first.Op == history.Record), u.mustCount
}
