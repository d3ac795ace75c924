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

// maxSketched is the maximum of shadows whose callers are counted. Each has 170 sketches, which take up to 340 KiB. For
// others, only calls are counted.
const maxSketched = 128

// Table counts the calls that shadows would deny, by policy. A limiter.Observer has its methods. It is safe for concurrent use;
// make one with New.
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

// SetPolicies replaces the policies whose shadows are counted. The counts of a policy with the same limits, mode and count
// as before are kept. SetPolicies must not be called concurrently.
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

// Observe counts a take, or a check that reserves. It does not keep d.
func (t *Table) Observe(op count.Op, key store.Key, _ int64, d *count.Decision) {
	tally := (*t.tallies.Load())[d.Policy.Name]
	if tally == nil || op != count.OpTake && (op != count.OpCheck || d.Recorded != count.RecordedYes) {
		return
	}
	tally.observe(key, d, t.now())
}

// Confirmed counts confirmed units under a policy.
func (t *Table) Confirmed(policy string, _ store.Key, units int64) {
	if tally := (*t.tallies.Load())[policy]; tally != nil {
		tally.confirm(units)
	}
}

// Report returns this instance's counts for policy. It returns false if the policy has no shadow.
func (t *Table) Report(policy string) (Report, bool) {
	tally := (*t.tallies.Load())[policy]
	if tally == nil {
		return Report{}, false
	}
	return tally.report(t.now()), true
}
