package demand

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Plan is a policy made ready to decide: everything that does not depend on the
// request is computed when the policy comes into force.
type Plan struct {
	count.Plan
	Keys      []*keys.Keys     // what is written goes under the first, what is read is under any
	LogWrites []store.LogWrite // the counting's logs, as a Write names them
	Promising bool             // its levels promise that a read sees what was written before
	ResetTTL  time.Duration
	Print     uint64 // of the policy's definition
	Version   int64  // of all policies that came into force together; 0: they have none
	Sums      uint64 // tells the limits whose units are in counters and cells from others
	Behind    bool   // owners admit from memory, and write that behind
	TakesBack bool   // so they do with what a receipt gives back or confirms: all limits are conversions
	Abortable bool   // a prepared unit can be given back as if it had never been counted, unlike one in a bucket
	Blocks    bool   // its denials do
	Regional  bool   // what it promises ends at a data centre's border, and claims about it may

	Parts  []*Plan // what is decided apart in a store that can't hold a key still; none: the plan itself
	Places []int   // of a part: for each rule, where the whole policy has its limit
	Local  *Plan   // of the same policy, for OnStoreErrorLocal; nil: nobody decides locally

	ByKey map[store.Key]*Plan // in whose place others decide for some keys; nil: for none
	asked *asked              // those in whose place others decide for demands with a limit; nil: no demand brings one

	// Base is the plan in whose name is kept what is known of keys: the plan itself, or the one that it is Asked of.
	Base *Plan

	Read    policy.ReadIdentifier // nil: identifiers are taken as they are
	Derives []*Plan               // of what is derived, one for each part that read returns
	Relents bool                  // some of it is for calls that conversions deny
	Marked  bool                  // it is derived for those that are known
}

// NewPlan returns the plan of policy in a store that holds keys still, or in one
// that can't.
func NewPlan(pol policy.Policy, o *Settings, still bool) *Plan {
	behind := !still && pol.Guarantee == policy.GuaranteeLocal
	if behind {
		pol.Counting = policy.CountingRows // what was written and is repeated must not count twice
	}
	p := &Plan{Plan: count.NewPlan(pol, o.Timing.Slack(), !still && pol.Guarantee == policy.GuaranteeSerial), Behind: behind}
	p.Blocks = p.BlockFor > 0 && p.Mode == policy.ModeEnforce
	p.Consistency = p.Consistency.WithDefault(o.Consistency)
	p.Promising = p.Consistency.Scope() != policy.ScopeNone
	inCell := p.Cell && (p.Serial || len(p.Logs) == 0 && !p.Counters)
	space := p.space(o, inCell && !still)
	p.Keys = []*keys.Keys{o.Keyer.For(space).CachedIn(o.keys)}
	if !inCell { // a cell's condition spans one key: it starts anew under another
		for i := range o.AlsoRead {
			p.Keys = append(p.Keys, o.AlsoRead[i].For(space).CachedIn(o.keys))
		}
	}
	for _, log := range p.Logs {
		p.LogWrites = append(p.LogWrites, store.LogWrite{Span: log.Span, TTL: o.Timing.Lasting(log.Window), Keep: log.Limit + 1})
	}
	p.Regional = still || p.Consistency.Scope() == policy.ScopeDatacenter || inCell
	if p.Cell && !still {
		p.Regional = p.Regional && o.Serial.Scope() == policy.ScopeDatacenter
	}
	p.Tally = p.Counters && !still && !p.Serial && p.Counting == policy.CountingRows
	p.TakesBack = behind && !slices.ContainsFunc(p.Rules, func(r count.Rule) bool { return r.Kind != policy.Conversion })
	p.Abortable = !p.Cell || p.TakesBack && !slices.ContainsFunc(p.Rules, func(r count.Rule) bool { return r.Probe != 0 })
	p.Sums, p.Print = p.sumLimits(), printOf(&p.Policy)
	p.ResetTTL = o.Timing.Lasting(2*p.LongestWindow() + o.Timing.Slack())
	if !still && !p.Serial {
		p.split(o)
	}
	if p.Base = p; p.FromRequest() >= 0 {
		p.asked = new(asked)
	}
	return p
}

// sumLimits returns a hash of the limits whose units are sums, not events: only what
// was counted for the same ones, in windows that begin where they began, can be given back.
func (p *Plan) sumLimits() uint64 {
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
func (p *Plan) space(o *Settings, ofCells bool) keys.KeySpace {
	space := keys.KeySpace{Policy: p.Name, Guarantee: p.Guarantee}
	scope := p.Consistency.Scope()
	if ofCells || p.Guarantee == policy.GuaranteeSerial {
		space.SerialLevel = string(o.Serial)
		scope = o.Serial.Scope()
	}
	if scope == policy.ScopeDatacenter {
		space.Scope = o.Region()
	}
	return space
}

// split makes parts of a policy whose limits are not all kept the same way: what is
// written first and counted then, and the buckets, which are compared and set.
func (p *Plan) split(o *Settings) {
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
		made := NewPlan(part, o, false)
		made.Places = limit
		p.Parts = append(p.Parts, made)
	}
}

// HoldWrites returns p's logs for events that are held: they live no longer than they
// may count, until their end by the slowest clock.
func (p *Plan) HoldWrites(hold time.Duration, o *Settings) []store.LogWrite {
	writes := slices.Clone(p.LogWrites)
	for i := range writes {
		writes[i].TTL = min(writes[i].TTL, o.holdTTL(hold))
	}
	return writes
}

// Life is for how long what is counted for a key of p matters, by any clock.
func (p *Plan) Life() time.Duration { return min(p.ResetTTL+time.Minute, owner.LongestLife) }

// OnFailure returns what the policy does when the store fails; in shadow mode it
// allows.
func (p *Plan) OnFailure() policy.OnStoreError {
	if p.Mode == policy.ModeShadow {
		return policy.OnStoreErrorAllow
	}
	return p.OnStoreError
}

// CountsOutsideCells reports whether anything of p is counted by writing first and counting then, or in memory.
func (p *Plan) CountsOutsideCells() bool {
	return p.Behind || !p.Cell || len(p.Parts) > 0
}

// HasConversion reports whether a limit of p is a conversion.
func (p *Plan) HasConversion() bool {
	return slices.ContainsFunc(p.Rules, func(r count.Rule) bool { return r.Kind == policy.Conversion })
}

// printOf returns what tells the definition of p from others, but for what only people read.
func printOf(p *policy.Policy) uint64 {
	told := *p
	told.Description = ""
	text, err := json.Marshal(&told)
	if err != nil {
		return 0
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// DenyFor returns the decision to deny for as long as a block lasts, or count.Never for one without end, without having
// asked anyone what is counted: as if every limit were reached that may deny.
func (p *Plan) DenyFor(rest time.Duration) count.Decision {
	var d count.Decision
	for i, limits := 0, p.Begin(&d); i < len(limits); i++ {
		r, v := &p.Rules[i], &limits[i].Verdict
		if r.Shadow {
			*v = r.Unasked()
			continue
		}
		*v = count.Verdict{Used: r.Capacity, ResetAfter: max(0, rest), RetryAfter: rest}
		if r.Limit.Limit == 0 {
			v.RetryAfter = count.Never
		}
	}
	d.Blocked = true
	d.Conclude()
	return d
}

// Overridden returns p with other limits, without those that it has not.
func (p *Plan) Overridden(limits []LimitOverride) policy.Policy {
	other := p.Policy
	other.Limits = slices.Clone(p.Limits)
	if p.Guarantee == policy.GuaranteeSerial {
		other.Consistency = policy.Consistency{} // the plan has the server's, which such a policy can't give itself
	}
	for i := range other.Limits {
		l := &other.Limits[i]
		j := slices.IndexFunc(limits, func(o LimitOverride) bool { return o.Name == l.Name })
		if j < 0 {
			continue
		}
		switch {
		case limits[j].Burst != 0:
			l.Burst = limits[j].Burst
		case l.Burst == l.Limit: // it was the default
			l.Burst = 0
		}
		*l = l.Asked(limits[j].Limit)
	}
	return other
}

// Refused returns the decision to deny for a reason that no wait changes, without having asked
// anyone what is counted.
func (p *Plan) Refused(reason policy.Reason) count.Decision {
	var d count.Decision
	for i, limits := 0, p.Begin(&d); i < len(limits); i++ {
		limits[i].Verdict = count.Verdict{RetryAfter: count.Never}
		if r := &p.Rules[i]; r.Shadow {
			limits[i].Verdict = r.Unasked()
		}
	}
	d.Reason = reason
	d.Conclude()
	return d
}
