package check

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// forever is later than all events.
const forever = time.Duration(math.MaxInt64 / 4)

// checker checks one history.
type checker struct {
	h    *history.History
	f    *Findings
	blur time.Duration // how far the date of a unit may be from the true time

	searched time.Duration // time spent so far on orders of calls
}

// key is an identifier under a policy, with all calls for it.
type key struct {
	policy     *history.Policy
	identifier string
	units      []*unit // in the order in which they were asked for
	checks     []*unit // calls that counted nothing
}

func (k *key) String() string { return k.policy.Name + "/" + k.identifier }

// unit is a unit that was asked for: by one call, by several with one idempotency key, or by a reservation and its
// settlement.
type unit struct {
	first  *history.Call
	answer *history.Call // the answer with the most information
	calls  []*history.Call
	ends   []*history.Call // calls that confirmed or refunded it

	called    time.Duration
	returned  time.Duration // when its last call was answered
	from      time.Duration // earliest date, by a true clock
	until     time.Duration // latest date
	mayCount  bool          // it may count
	mustCount bool          // it is known to count
	held      bool          // it is a reservation, which may end by itself
}

// admitted reports whether it was allowed.
func (u *unit) admitted() bool { return u.first.Op == history.Take && u.mustCount }

// denied reports whether its only answer was a denial.
func (u *unit) denied() bool { return u.answer.Status == 429 && !u.mayCount }

// keys returns all keys, with their units, in the order in which they were first asked
// for.
func (c *checker) keys() (keys []*key) {
	known := make(map[history.Demand]*key)
	units := make(map[*key]map[int]*unit)
	for i := range c.h.Calls {
		call := &c.h.Calls[i]
		for _, d := range call.Demands {
			k := known[d]
			if k == nil {
				k = &key{policy: c.h.Header.Policy(d.Policy), identifier: d.Identifier}
				known[d], units[k] = k, make(map[int]*unit)
				keys = append(keys, k)
			}
			c.addTo(k, units[k], call)
		}
	}
	for _, k := range keys {
		for _, u := range k.units {
			u.finish()
			c.delay(u)
		}
	}
	return keys
}

// delay extends the possible dates of u, whose outcome is unknown: until the owner of its key can
// last have received it, after neither the owner nor the connection to it was frozen.
func (c *checker) delay(u *unit) {
	if !c.h.Header.Peers || !u.mayCount || u.mustCount {
		return
	}
	for _, call := range u.calls {
		underWay := history.Span{From: call.Called, Until: call.Returned}
		for i := range c.h.Faults {
			if f := &c.h.Faults[i]; history.StandsStill(f.Kind) && f.Meets(underWay) {
				u.until = max(u.until, f.Until+c.h.Header.StoreTimeout+c.blur)
			}
		}
	}
}

// addTo adds call to its unit.
func (c *checker) addTo(k *key, units map[int]*unit, call *history.Call) {
	if call.Op == history.Check && call.Reserve == 0 {
		if !call.Final && call.Decided() {
			u := &unit{first: call}
			u.add(call, c.blur)
			u.finish()
			k.checks = append(k.checks, u)
		}
		return
	}
	n := cmp.Or(call.Of, call.N)
	u := units[n]
	if u == nil {
		u = &unit{first: call}
		units[n] = u
		k.units = append(k.units, u)
	}
	if call.Ends() {
		u.ends = append(u.ends, call)
		return
	}
	u.add(call, c.blur)
}

// add adds the information in call to u.
func (u *unit) add(call *history.Call, blur time.Duration) {
	if u.answer == nil {
		u.answer, u.called, u.from = call, call.Called, call.Called-blur
	}
	u.calls = append(u.calls, call)
	counts := call.Recorded == history.Yes
	if call.Reserve > 0 {
		u.held = true
		counts = false
		u.mayCount = u.mayCount || call.Status == 200 || call.Recorded == history.Unknown
	}
	switch {
	case counts && !u.mustCount:
		u.answer, u.returned = call, call.Returned
	case !u.mustCount:
		u.returned = max(u.returned, call.Returned)
	}
	u.mustCount = u.mustCount || counts
	u.mayCount = u.mayCount || counts || call.Recorded == history.Unknown
}

// finish settles u's times when all of its calls are known.
func (u *unit) finish() {
	last := slices.MaxFunc(u.calls, func(a, b *history.Call) int { return cmp.Compare(a.Returned, b.Returned) })
	blur := u.called - u.from
	u.until = u.returned + blur
	if u.mayCount && !u.mustCount {
		u.until, u.returned = last.Returned+blur, forever
		if slices.ContainsFunc(u.calls, func(c *history.Call) bool { return c.Status == 0 }) {
			u.until += lateness // its process may have been frozen
		}
	}
}

// instant returns the true time at a time of the history, in milliseconds
// since the Unix epoch.
func (c *checker) instant(at time.Duration) int64 {
	return c.h.Header.Started.Add(at).UnixMilli()
}
