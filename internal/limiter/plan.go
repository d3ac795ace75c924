package limiter

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// plan is a policy made ready to decide: everything that does not depend on the
// request is computed when the policy comes into force.
type plan struct {
	count.Plan
	keys      []*keys.Keys     // what is written goes under the first, what is read is under any
	logWrites []store.LogWrite // the counting's logs, as a Write names them
	promising bool             // its levels promise that a read sees what was written before
	resetTTL  time.Duration
	print     uint64 // of the policy's definition
	version   int64  // of all policies that came into force together; 0: they have none
	sums      uint64 // tells the limits whose units are in counters and cells from others
	behind    bool   // owners admit from memory, and write that behind
	regional  bool   // what it promises ends at a data centre's border, and claims about it may

	parts []*plan // what is decided apart in a store that can't hold a key still; none: the plan itself
	limit []int   // of a part: for each rule, where the whole policy has its limit
	local *plan   // of the same policy, for OnStoreErrorLocal; nil: nobody decides locally

	read    policy.ReadIdentifier // nil: identifiers are taken as they are
	derives []*plan               // of what is derived, one for each part that read returns
}

// newPlan returns the plan of policy in a store that holds keys still, or in one
// that can't.
func newPlan(pol policy.Policy, o *Options, still bool) *plan {
	behind := !still && pol.Guarantee == policy.GuaranteeLocal
	if behind {
		pol.Counting = policy.CountingRows // what was written and is repeated must not count twice
	}
	p := &plan{Plan: count.NewPlan(pol, o.timing.Slack(), !still && pol.Guarantee == policy.GuaranteeSerial), behind: behind}
	p.Consistency = p.Consistency.WithDefault(o.Consistency)
	p.promising = p.Consistency.Scope() != policy.ScopeNone
	inCell := p.Cell && (p.Serial || len(p.Logs) == 0 && !p.Counters)
	space := p.space(o, inCell && !still)
	p.keys = []*keys.Keys{o.Keyer.For(space).CachedIn(o.keys)}
	if !inCell { // a cell's condition spans one key: it starts anew under another
		for i := range o.AlsoRead {
			p.keys = append(p.keys, o.AlsoRead[i].For(space).CachedIn(o.keys))
		}
	}
	for _, log := range p.Logs {
		p.logWrites = append(p.logWrites, store.LogWrite{Span: log.Span, TTL: o.timing.Lasting(log.Window), Keep: log.Limit + 1})
	}
	p.regional = still || p.Consistency.Scope() == policy.ScopeDatacenter || inCell
	if p.Cell && !still {
		p.regional = p.regional && o.Serial.Scope() == policy.ScopeDatacenter
	}
	p.Tally = p.Counters && !still && !p.Serial && p.Counting == policy.CountingRows
	p.sums, p.print = p.sumLimits(), printOf(&p.Policy)
	p.resetTTL = o.timing.Lasting(2*p.LongestWindow() + o.timing.Slack())
	if !still && !p.Serial {
		p.split(o)
	}
	return p
}

// sumLimits returns a hash of the limits whose units are sums, not events: only what
// was counted for the same ones, in windows that begin where they began, can be given back.
func (p *plan) sumLimits() uint64 {
	sum := sha256.New()
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Kind.Memory == policy.MemoryEvents {
			continue
		}
		sum.Write(keys.AppendPart(nil, string(r.ID)))
		if r.Kind == policy.SlidingWindow {
			sum.Write(keys.AppendPart(nil, r.Width.String()))
		}
	}
	return binary.BigEndian.Uint64(sum.Sum(nil))
}

// space returns what the policy's keys have in common. Where they are those of cells,
// compare-and-set says how far a promise reaches, not the levels of reads and writes.
func (p *plan) space(o *Options, ofCells bool) keys.KeySpace {
	space := keys.KeySpace{Policy: p.Name, Guarantee: p.Guarantee}
	scope := p.Consistency.Scope()
	if ofCells || p.Guarantee == policy.GuaranteeSerial {
		space.SerialLevel = string(o.Serial)
		scope = o.Serial.Scope()
	}
	if scope == policy.ScopeDatacenter {
		space.Scope = o.datacenter()
	}
	return space
}

// split makes parts of a policy whose limits are not all kept the same way: what is
// written first and counted then, and the buckets, which are compared and set.
func (p *plan) split(o *Options) {
	inCell := func(l policy.Limit) bool {
		a, _ := policy.AlgorithmByName(l.Algorithm)
		return a.Memory == policy.MemoryCells
	}
	if !p.Cell || !slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return !inCell(l) }) {
		return
	}
	for _, cell := range []bool{true, false} { // the buckets first: a denial there costs nothing to undo
		part := p.Policy
		part.Limits = nil
		var limit []int
		for i, l := range p.Limits {
			if inCell(l) == cell {
				part.Limits, limit = append(part.Limits, l), append(limit, i)
			}
		}
		made := newPlan(part, o, false)
		made.limit = limit
		p.parts = append(p.parts, made)
	}
}

// logWritesFor returns the logs that own's events are appended to.
func (p *plan) logWritesFor(own *units, o *Options) []store.LogWrite {
	if hold := own.batch[0].hold; hold > 0 { // a request that holds travels alone
		return p.holdWrites(hold, o)
	}
	return p.logWrites
}

// holdWrites returns p's logs for events that are held: they live no longer than they
// may count, until their end by the slowest clock.
func (p *plan) holdWrites(hold time.Duration, o *Options) []store.LogWrite {
	writes := slices.Clone(p.logWrites)
	for i := range writes {
		writes[i].TTL = min(writes[i].TTL, o.holdTTL(hold))
	}
	return writes
}

// holdTTL returns how long the row of a hold must live.
func (o *Options) holdTTL(hold time.Duration) time.Duration {
	return o.timing.Lasting(hold + o.timing.Slack())
}
