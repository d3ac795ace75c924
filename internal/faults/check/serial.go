package check

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Bounds of the search for an order of calls. It is exponential in the calls whose
// outcome nobody knows; of those there are a handful in a key's life, and it takes
// milliseconds.
const (
	decideWithin    = 10 * time.Second // of one key
	decideAllWithin = 5 * time.Minute  // of all, but for leastPatience each
	leastPatience   = 500 * time.Millisecond
)

// serial holds that there is an order of k's calls, each at a moment between its call
// and its answer, in which each was rightly decided by the units before it.
//
// The date of a unit is known only within the tolerance. So the model accepts an answer that is
// right for some date: it admits units that fit beside all that surely count, and denies units
// that may not fit beside all that may count.
func (c *checker) serial(k *key) {
	n := c.counting(k.policy)
	var calls []porcupine.Operation
	for _, u := range slices.Concat(k.units, k.checks) {
		if !u.mayCount && !u.answer.Decided() {
			continue // it changed nothing and says nothing
		}
		calls = append(calls, porcupine.Operation{Input: u, Call: int64(u.called), Return: int64(n.over(u, c.blur))})
		calls = append(calls, n.endings(k, u, c.blur)...)
	}
	model := n.logModel(k)
	if k.policy.InBucket() {
		model = n.bucketModel()
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(model, calls, max(leastPatience, min(decideWithin, decideAllWithin-c.searched)))
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

// over returns when u has taken place. A unit of which nobody knows whether it was ever
// stored takes place at any later time; once it would not count any more, it is the same
// as never. In buckets it always may.
func (n *counting) over(u *unit, blur time.Duration) time.Duration {
	if u.returned < forever || n.policy.InBucket() {
		return u.returned
	}
	return u.until + 2*n.policy.Window + n.slack + 2*blur
}

// ending gives a unit back.
type ending struct{ of *unit }

// endings returns what gave u back, or may have. One of which nobody knows whether it did takes place at any
// later time; once u would not count any more, that is the same as never.
func (n *counting) endings(k *key, u *unit, blur time.Duration) (calls []porcupine.Operation) {
	for _, call := range u.ends {
		if call.Status == 404 || call.Op == history.Confirm && k.policy.Until == "" {
			continue
		}
		by := call.Returned
		if call.Status != 200 {
			by = max(by, u.until+2*n.policy.Window+n.slack+2*blur)
		}
		calls = append(calls, porcupine.Operation{Input: ending{u}, Call: int64(call.Called), Return: int64(by)})
	}
	return calls
}

// logState is the set of units that are counted, as their numbers in the key, each a
// byte of a bit set.
type logState string

func (s logState) with(i int) logState {
	b := []byte(s)
	b[i/8] |= 1 << (i % 8)
	return logState(b)
}

func (s logState) without(i int) logState {
	b := []byte(s)
	b[i/8] &^= 1 << (i % 8)
	return logState(b)
}

func (s logState) has(i int) bool { return s[i/8]&(1<<(i%8)) != 0 }

// logModel is the model of what counts each unit, in a log or in windows.
func (n *counting) logModel(k *key) porcupine.Model {
	numbers := make(map[*unit]int, len(k.units))
	for i, u := range k.units {
		numbers[u] = i
	}
	return porcupine.Model{
		Init: func() any { return logState(make([]byte, (len(k.units)+7)/8)) },
		Step: func(state, input, _ any) (bool, any) {
			s := state.(logState)
			if back, ok := input.(ending); ok {
				return true, s.without(numbers[back.of])
			}
			u := input.(*unit)
			sure, possible := int64(0), int64(0)
			for i, o := range k.units {
				if !s.has(i) {
					continue
				}
				if n.inWindow(o.from, u.until) {
					sure++
				}
				if n.inWindow(o.until, u.from) {
					possible++
				}
			}
			right, counted := n.judge(u, sure, possible, sure+1 <= n.policy.Limit, possible+1 > n.policy.Limit)
			if counted {
				s = s.with(numbers[u])
			}
			return right, s
		},
	}
}

// bucketState holds what a bucket holds at the time 0 if it had drained since ever: the
// least and the most, in parts.
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

// judge reports whether u's answer is right if others use between least and most units, and
// whether u counts from there on. mayFit and mayNot say that u may fit, and may not fit.
func (n *counting) judge(u *unit, least, most int64, mayFit, mayNot bool) (right, counts bool) {
	own := int64(0)
	switch {
	case u.first.Op == history.Check:
	case u.mustCount:
		own = 1
	case u.mayCount:
		return true, mayFit // or never, if it comes last
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
