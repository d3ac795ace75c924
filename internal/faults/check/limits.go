package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// limit checks that no more units were admitted than k's limit allows, by its algorithm's definition, among those that
// were certainly in a window or an interval.
func (c *checker) limit(k *key) {
	var admitted []*unit
	for _, u := range k.units {
		if u.admitted() {
			admitted = append(admitted, u)
		}
	}
	n := c.counting(k.policy)
	switch {
	case k.policy.InBucket():
		c.limitOfBucket(k, &n, admitted)
	case k.policy.Converts():
		c.limitOfConversion(k, &n, admitted)
	case k.policy.IsLog():
		c.limitOfLog(k, admitted)
	default:
		c.limitOfWindows(k, &n, admitted)
	}
}

// limitOfLog looks at each interval of the window's length that begins with a call. Clocks don't matter: a take is
// dated between its call and its answer.
func (c *checker) limitOfLog(k *key, admitted []*unit) {
	for _, first := range admitted {
		within := selected(admitted, func(u *unit) bool {
			return u.called >= first.called && u.returned < first.called+k.policy.Window
		})
		if c.tooMany(k, within, k.policy.Limit, fmt.Sprintf("in the %v from %.3f s on", k.policy.Window, first.called.Seconds())) {
			return
		}
	}
}

// limitOfWindows looks at each run of buckets that count together, or each fixed window. It
// ignores units so close to an edge that their date may be beyond it.
func (c *checker) limitOfWindows(k *key, n *counting, admitted []*unit) {
	for _, first := range admitted {
		start := n.floor(first.from)
		end := start + k.policy.Window
		within := selected(admitted, func(u *unit) bool { return u.from >= start && u.until < end })
		if c.tooMany(k, within, k.policy.Limit, fmt.Sprintf("in the window from %.3f s on", start.Seconds())) {
			return
		}
		if k.policy.Algorithm == "sliding-tail" && c.tailTooLong(k, start, admitted, within) {
			return
		}
	}
}

// tailTooLong checks, at the last admission of a window, that its count and the share of the previous window fit.
func (c *checker) tailTooLong(k *key, start time.Duration, admitted, within []*unit) bool {
	window := k.policy.Window
	before := selected(admitted, func(u *unit) bool { return u.from >= start-window && u.until < start })
	last := start
	for _, u := range within {
		last = max(last, u.until)
	}
	share := int64(len(before)) * (start + window - last).Milliseconds() / window.Milliseconds()
	what := fmt.Sprintf("in the window from %.3f s on, beside %d of %d in the one before,", start.Seconds(), share, len(before))
	return len(within) > 0 && c.tooMany(k, within, k.policy.Limit-share, what)
}

// limitOfBucket looks at each time from one call to another one's answer: no more units than
// fit into the bucket and drain in that time, if clocks differ by twice the tolerance.
func (c *checker) limitOfBucket(k *key, n *counting, admitted []*unit) {
	byAnswer := slices.Clone(admitted)
	slices.SortStableFunc(byAnswer, func(a, b *unit) int { return cmp.Compare(a.returned, b.returned) })
	for _, first := range admitted {
		for _, last := range byAnswer {
			within := selected(admitted, func(u *unit) bool { return u.called >= first.called && u.returned <= last.returned })
			lasts := last.returned - first.called + 2*c.blur
			if len(within) > 0 && n.parts(int64(len(within))) > n.parts(k.policy.Capacity())+n.drained(lasts) {
				c.f.add(Violation{CheckLimit, k.String(), fmt.Sprintf("%d admitted in %v of a bucket of %d that drains %d in %v",
					len(within), lasts-2*c.blur, k.policy.Capacity(), k.policy.Limit, k.policy.Window), callsOf(within)})
				return
			}
		}
	}
}

// tooMany reports whether more than limit units were admitted and not freed before, and adds a violation if so.
func (c *checker) tooMany(k *key, within []*unit, limit int64, when string) bool {
	if int64(len(within)) <= limit {
		return false
	}
	if within = k.together(within); int64(len(within)) <= limit {
		return false
	}
	what := fmt.Sprintf("%d admitted %s of a limit of %d", len(within), when, k.policy.Limit)
	c.f.add(Violation{CheckLimit, k.String(), what, callsOf(within)})
	return true
}

func selected(units []*unit, by func(*unit) bool) (found []*unit) {
	for _, u := range units {
		if by(u) {
			found = append(found, u)
		}
	}
	return found
}

func callsOf(units []*unit) (calls []history.Call) {
	for _, u := range units {
		for _, c := range slices.Concat(u.calls, u.ends) {
			calls = append(calls, *c)
		}
	}
	return calls
}
