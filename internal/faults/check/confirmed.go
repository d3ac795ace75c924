package check

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// The fate of a unit, according to calls with its receipt.

// tried returns when op was first called with u's receipt and not refused; forever: never.
func (u *unit) tried(op string) time.Duration {
	first := forever
	for _, call := range u.ends {
		if call.Op == op && call.Status != 404 {
			first = min(first, call.Called)
		}
	}
	return first
}

// done returns by when op of u's receipt is known to be done, or forever if that is unknown.
func (u *unit) done(op string) time.Duration {
	first := forever
	for _, call := range u.ends {
		if call.Op == op && call.Status == 200 {
			first = min(first, call.Returned)
		}
	}
	return first
}

// mayGo returns from when u may be freed.
func (k *key) mayGo(u *unit) time.Duration {
	if k.policy.Until != "" {
		return min(u.tried(history.Refund), u.tried(history.Confirm))
	}
	return u.tried(history.Refund)
}

// gone returns by when u is known to be refunded. For counters that is unknown: units that are refunded soon after they were
// counted are subtracted later, and never if the process dies before that.
func (k *key) gone(u *unit) time.Duration {
	switch {
	case !k.policy.IsLog() && !k.policy.Converts():
		return forever
	case k.policy.Until != "":
		return min(u.done(history.Refund), u.done(history.Confirm))
	}
	return u.done(history.Refund)
}

// together returns the most units, all admitted within one window, that certainly counted when the last
// of them was admitted.
func (k *key) together(units []*unit) (most []*unit) {
	for _, last := range units {
		counted := selected(units, func(u *unit) bool { return u.returned <= last.returned && k.mayGo(u) > last.returned })
		if len(counted) > len(most) {
			most = counted
		}
	}
	return most
}

// limitOfConversion looks, for each unit, at the units that had certainly been sent by then and still counted. The last
// admitted one must have been allowed, given the most confirmations possible by then, or be a probe.
func (c *checker) limitOfConversion(k *key, n *counting, admitted []*unit) {
	for _, last := range admitted {
		sent := selected(admitted, func(u *unit) bool {
			return u.returned <= last.returned && n.inWindow(u.from, last.until) && u.tried(history.Refund) > last.returned
		})
		begun := time.Duration(0) // the last was admitted then or later
		for _, u := range sent {
			begun = max(begun, u.called)
		}
		confirmed := selected(k.units, func(u *unit) bool {
			return u.tried(history.Confirm) <= last.returned && n.inWindow(u.until, begun-c.blur)
		})
		if !k.policy.Denies(int64(len(sent)-1), int64(len(confirmed))) || k.endsInProbe(sent) {
			continue
		}
		what := fmt.Sprintf("%d sent by %.3f s, of which %d can have been confirmed, after %d, of %d %%, and none is a probe",
			len(sent), last.returned.Seconds(), len(confirmed), k.policy.Limit, k.policy.MinConversion)
		c.f.add(Violation{CheckLimit, k.String(), what, callsOf(sent)})
		return
	}
}

// endsInProbe reports whether the last of units may be a probe: as long after each other one as a probe must have
// no unit before it.
func (k *key) endsInProbe(units []*unit) bool {
	for _, last := range units {
		late := true
		for _, u := range units {
			late = late && (u == last || u.from+k.policy.Probe <= last.until)
		}
		if late {
			return true
		}
	}
	return false
}

// lets reports whether a conversion certainly admits u: given the most units that can have been sent and the least that
// were confirmed, or as a probe.
func (c *checker) lets(k *key, u *unit) bool {
	n := c.counting(k.policy)
	sent, confirmed, isProbe := int64(0), int64(0), true
	for _, o := range c.before(k, u) {
		isProbe = isProbe && o.until+k.policy.Probe <= u.from
		if n.inWindow(o.until, u.from) && k.gone(o) >= u.called {
			sent++
		}
		if o.mustCount && n.inWindow(o.from, u.until) && o.done(history.Confirm) < u.called {
			confirmed++
		}
	}
	return isProbe || !k.policy.Denies(sent, confirmed)
}

// converted returns the least and the most units that a conversion can report as used at the end.
func (k *key) converted() (least, most int64) {
	var sent, confirmed [2]int64 // the least and the most
	for _, u := range k.units {
		if u.mustCount && u.tried(history.Refund) == forever {
			sent[0]++
		}
		if u.mayCount && !u.onlyHeld() && k.gone(u) == forever {
			sent[1]++
		}
		if u.mustCount && u.done(history.Confirm) < forever {
			confirmed[0]++
		}
		if u.tried(history.Confirm) < forever {
			confirmed[1]++
		}
	}
	used := func(sent, confirmed int64) int64 {
		passing := confirmed*100/int64(k.policy.MinConversion) + 1
		return max(0, sent-max(0, passing-k.policy.Limit))
	}
	return used(sent[0], confirmed[1]), used(sent[1], confirmed[0])
}

// receipts checks that the units of a receipt were confirmed or refunded only once, and that a receipt was refused only
// if another call may have been first, or its window or reservation was over. A release may be repeated.
func (c *checker) receipts(k *key) {
	for _, u := range k.units {
		firsts := 0
		for _, call := range u.ends {
			earlier := false
			for _, other := range u.ends {
				earlier = earlier || other != call && other.Called <= call.Returned && other.Status != 404
			}
			over := call.Returned+c.blur >= u.from+cmp.Or(u.first.Reserve, k.policy.Window)
			switch {
			case call.Status == 200 && !call.Replayed:
				firsts++
			case call.Status == 200 && !earlier:
				c.f.add(Violation{CheckOnce, k.String(), "confirmed before, and nobody did", callsOf([]*unit{u})})
			case call.Status == 404 && !earlier && !over:
				c.f.add(Violation{CheckOnce, k.String(), "a receipt that is good is refused", callsOf([]*unit{u})})
			}
		}
		if firsts > 1 && !k.policy.Releases() {
			c.f.add(Violation{CheckOnce, k.String(), fmt.Sprintf("confirmed or refunded %d times", firsts), callsOf([]*unit{u})})
		}
	}
}
