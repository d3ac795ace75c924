package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Kinds of denials, and when they may be wrong.
const (
	KindBucket  = "buckets"       // never
	KindLog     = "logs"          // when instances compete for the last unit, and after one of them died
	KindWindow  = "windows"       // the same, and until the units of denied calls have been subtracted
	KindLarge   = "large windows" // the same, for all calls of a burst
	KindSeveral = "several demands"
)

// Kinds lists all kinds of denials, in the order of reports.
func Kinds() []string {
	return []string{KindBucket, KindLog, KindWindow, KindLarge, KindSeveral}
}

// mostWrong is the share of denials that may be wrong, for kinds where some may be. It is far more than in real runs, and
// less than in a service that denies at random. It needs more than a few denials.
var mostWrong = map[string]float64{KindLog: 0.4, KindWindow: 0.6, KindLarge: 0.95, KindSeveral: 0.6}

const tooFewToTell = 40

// largeLimit is the smallest limit of large windows.
const largeLimit = 128

func kindOf(p *history.Policy) string {
	switch {
	case p.With != "":
		return KindSeveral
	case p.InBucket(), p.Converts(): // compared and set
		return KindBucket
	case p.IsLog():
		return KindLog
	}
	if p.Limit >= largeLimit {
		return KindLarge
	}
	return KindWindow
}

// denials counts calls that were denied although k had room all the time, even if every unit
// counted whose outcome is unknown.
func (c *checker) denials(k *key) {
	if k.policy.With != "" && k.policy.With < k.policy.Name {
		return // the other key of the pair is checked
	}
	kind := kindOf(k.policy)
	for _, u := range k.units {
		if !u.denied() || len(u.calls) > 1 {
			continue
		}
		c.f.DeniedOf[kind]++
		if !c.hadRoom(k, u) {
			continue
		}
		c.f.WronglyDenied[kind]++
		if mostWrong[kind] == 0 {
			c.f.add(Violation{CheckDenied, k.String(), "denied though there was room", append(callsOf([]*unit{u}), callsOf(c.around(k, u))...)})
		}
	}
}

// hadRoom reports whether u certainly had room when it was decided.
func (c *checker) hadRoom(k *key, u *unit) bool {
	if k.policy.Converts() {
		return c.lets(k, u)
	}
	return c.mostUsed(k, u)+1 <= c.leastCapacity(k.policy)
}

// leastCapacity returns how many units p's key can hold at least. If two policies share calls, the smaller one
// denies.
func (c *checker) leastCapacity(p *history.Policy) int64 {
	least := p.Capacity()
	if other := c.h.Header.Policy(p.With); other != nil {
		least = min(least, other.Capacity())
	}
	return least
}

// mostUsed returns the most units that others can have used of k when u was decided.
func (c *checker) mostUsed(k *key, u *unit) (used int64) {
	n := c.counting(k.policy)
	before := c.before(k, u)
	if k.policy.InBucket() {
		return n.ceil(n.most(before, u.from))
	}
	for _, o := range before {
		if n.inWindow(o.until, u.from) && k.gone(o) >= u.called {
			used++
		}
	}
	return used
}

// before returns the units that may count when u is decided.
func (c *checker) before(k *key, u *unit) []*unit {
	return selected(k.units, func(o *unit) bool { return o != u && o.mayCount && o.called <= u.returned })
}

// most returns the most parts that a bucket can hold at now of units that may be in it.
func (n *counting) most(units []*unit, now time.Duration) (level int64) {
	byUntil := slices.Clone(units)
	slices.SortStableFunc(byUntil, func(a, b *unit) int { return cmp.Compare(a.until, b.until) })
	for i, u := range byUntil {
		level = max(level, n.parts(int64(len(byUntil)-i))-n.drained(max(0, now-u.until)))
	}
	return level
}

// ceil returns parts as units, a part of one counted as one.
func (n *counting) ceil(parts int64) int64 {
	whole := n.policy.Window.Milliseconds()
	return (max(0, parts) + whole - 1) / whole
}

// around returns the units of k that were asked for shortly before u.
func (c *checker) around(k *key, u *unit) []*unit {
	return selected(k.units, func(o *unit) bool {
		return o != u && o.called <= u.returned && o.called > u.called-2*k.policy.Window-c.blur
	})
}

// deniedTooOften reports a violation if there are more wrong denials than races between instances explain.
func (c *checker) deniedTooOften() {
	for _, kind := range Kinds() {
		wrong, all := c.f.WronglyDenied[kind], c.f.DeniedOf[kind]
		most := int(math.Ceil(mostWrong[kind] * float64(all)))
		if mostWrong[kind] > 0 && wrong > max(most, tooFewToTell) {
			c.f.add(Violation{Check: CheckDenied, What: fmt.Sprintf("%d of %d denials of %s were wrong", wrong, all, kind)})
		}
	}
}
