package shadow

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// maxSketched is how many shadows have their callers counted: 170 sketches each, of 340 KiB where all of them are of many
// callers. Those beyond have calls counted alone.
const maxSketched = 128

// Table tallies calls that shadows would deny, by policy. It is a limiter.Observer, and safe for
// concurrent use; make one with New.
type Table struct {
	now     func() time.Time
	tallies atomic.Pointer[map[string]*tally]
}

// New returns a table without policies, whose clock is now.
func New(now func() time.Time) *Table {
	t := &Table{now: now}
	t.tallies.Store(new(map[string]*tally))
	return t
}

// SetPolicies has t count calls that shadows of policies would deny, in place of all earlier ones.
// Where a policy's limits, mode and count are the same, counting goes on. It is not to be called
// twice at once.
func (t *Table) SetPolicies(policies []*policy.Policy) {
	old, now := *t.tallies.Load(), t.now()
	tallies, sketched := make(map[string]*tally), 0
	for _, p := range policies {
		shadows := 0
		for i := range p.Limits {
			if p.Limits[i].Shadow || p.Mode == policy.ModeShadow {
				shadows++
			}
		}
		if shadows == 0 || p.Mode == policy.ModeOff {
			continue
		}
		print := printOf(p)
		sketched += shadows
		if was := old[p.Name]; was != nil && was.print == print {
			tallies[p.Name] = was
			continue
		}
		tallies[p.Name] = newTally(p, print, now, sketched <= maxSketched)
	}
	t.tallies.Store(&tallies)
}

// printOf returns a fingerprint of the shadows of p.
func printOf(p *policy.Policy) uint64 {
	text, err := json.Marshal([]any{p.Limits, p.Mode, p.Count})
	if err != nil {
		return 0
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// Observe counts a take, or a check that reserves. It keeps nothing of d.
func (t *Table) Observe(op count.Op, key store.Key, _ int64, d *count.Decision) {
	tally := (*t.tallies.Load())[d.Policy.Name]
	if tally == nil || op != count.OpTake && (op != count.OpCheck || d.Recorded != count.RecordedYes) {
		return
	}
	tally.observe(key, d, t.now())
}

// Confirmed counts units that are confirmed under a policy.
func (t *Table) Confirmed(policy string, _ store.Key, units int64) {
	if tally := (*t.tallies.Load())[policy]; tally != nil {
		tally.confirm(units)
	}
}

// Report returns this instance's counts of policy; false: nothing of it is in shadow.
func (t *Table) Report(policy string) (Report, bool) {
	tally := (*t.tallies.Load())[policy]
	if tally == nil {
		return Report{}, false
	}
	return tally.report(t.now()), true
}
