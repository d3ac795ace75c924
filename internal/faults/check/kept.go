package check

import (
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// settlesIn is how long after an answer its process may still work on the call: it takes units back, or completes a
// call with several demands.
const settlesIn = 10 * time.Second

// kept checks that k counts in the end all units that were acknowledged, and no more than were asked for.
func (c *checker) kept(k *key) {
	least, most := k.bounds()
	read := 0
	for _, call := range c.finals(k) {
		used := call.Used[0]
		read++
		if used < k.atLeast(least) {
			c.f.add(Violation{CheckLost, k.String(), fmt.Sprintf("%d used in the end, of at least %d", used, least), c.story(k, &call)})
		}
		if used > most {
			c.f.add(Violation{CheckDouble, k.String(), fmt.Sprintf("%d used in the end, of at most %d", used, most), c.story(k, &call)})
		}
		if used < least || used > most {
			break
		}
	}
	if read == 0 {
		c.f.add(Violation{Check: CheckEmpty, Where: k.String(), What: "nobody reported its count at the end"})
	}
	c.f.Kept++
}

// bounds returns the least and the most units that k can count at the end. Units that are
// only held have ended then.
func (k *key) bounds() (least, most int64) {
	if k.policy.Converts() {
		return k.converted()
	}
	for _, u := range k.units {
		if u.mustCount && k.mayGo(u) == forever {
			least += u.units()
		}
		if (u.mustCount || u.mayCount && !u.onlyHeld()) && k.gone(u) == forever {
			most += u.units()
		}
	}
	return least, most
}

// units returns how many units u is: the cost at which a record settles its reservation, or one.
func (u *unit) units() int64 {
	for _, call := range u.calls {
		if call.Cost > 0 {
			return call.Cost
		}
	}
	return 1
}

// atLeast returns how many of these units an answer must report as used: no more than fit, except under a conversion.
func (k *key) atLeast(units int64) int64 {
	if k.policy.Converts() {
		return units
	}
	return min(units, k.policy.Capacity())
}

// onlyHeld reports whether u is a reservation that no call tried to settle.
func (u *unit) onlyHeld() bool { return u.held && len(u.calls) == 1 }

func (c *checker) story(k *key, last *history.Call) []history.Call {
	return append(callsOf(k.units), *last)
}

// finals returns the calls that read k's count at the end.
func (c *checker) finals(k *key) (calls []history.Call) {
	d := history.Demand{Policy: k.policy.Name, Identifier: k.identifier}
	for i := range c.h.Calls {
		call := &c.h.Calls[i]
		if call.Final && call.Decided() && len(call.Used) > 0 && call.Demands[0] == d {
			calls = append(calls, *call)
		}
	}
	return calls
}

// pairs checks that of two logs that share all calls, either both count a unit at the end or neither does.
// Calls whose process died during them or soon after are uncertain, and calls without an answer during which another
// process died, which may have been the owner of one of the keys.
func (c *checker) pairs(keys []*key) {
	for _, k := range keys {
		if k.policy.With == "" || k.policy.With < k.policy.Name {
			continue
		}
		other := &key{policy: c.h.Header.Policy(k.policy.With), identifier: k.identifier}
		one, two := c.finals(k), c.finals(other)
		if len(one) == 0 || len(two) == 0 {
			continue
		}
		doubt := int64(0)
		for _, u := range k.units {
			if u.mayCount && !u.mustCount && c.diedOver(u) {
				doubt++
			}
		}
		if difference := one[0].Used[0] - two[0].Used[0]; difference > doubt || -difference > doubt {
			c.f.add(Violation{CheckHalf, k.identifier, fmt.Sprintf("%d of %s and %d of %s, which go together",
				one[0].Used[0], k.policy.Name, two[0].Used[0], other.policy.Name), c.story(k, &one[0])})
		}
	}
}

// diedOver reports whether a process that was asked for u was killed before it may have finished, or whether an owner of
// u's keys may have been killed during the call.
func (c *checker) diedOver(u *unit) bool {
	for _, call := range u.calls {
		asked := history.Span{From: call.Called, Until: call.Returned}
		working := history.Span{From: call.Called, Until: call.Returned + settlesIn}
		for i := range c.h.Faults {
			f := &c.h.Faults[i]
			switch {
			case f.Kind != history.ProcessKill && f.Kind != history.ProcessStop:
			case f.Target == call.Process && f.Meets(working),
				c.h.Header.Peers && call.Recorded == history.Unknown && f.Meets(asked):
				return true
			}
		}
	}
	return false
}
