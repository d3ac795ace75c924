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

// Plan is a policy prepared for decisions: values that don't depend on the request are computed when the policy comes into
// force.
type Plan struct {
	count.RuleSet
	Keys      []*keys.Keys     // writes use the first, reads use all
	LogWrites []store.LogWrite // the logs of count.RuleSet, for a Write
	Promising bool             // its levels meet: a read sees earlier writes
	ResetTTL  time.Duration
	Sums      uint64 // identifies the limits whose units are in counters and cells
	Behind    bool   // owners admit from memory, and write behind
	TakesBack bool   // only a key's owner can apply its refunds: all limits are conversions under GuaranteeLocal, or concurrent
	Abortable bool   // a prepared unit can be given back without a trace, unlike one in a bucket
	Blocks    bool   // its denials block keys
	Regional  bool   // its guarantee holds within a data centre, so claims may do so, too
	ByCell    bool   // compare-and-set on the key's cell decides, not a write and then a read, nor memory

	Definition Definition // without Text

	Local *Plan // the plan of the same policy for OnStoreErrorLocal; nil: no local decisions

	ByKey map[store.Key]*Plan // plans that replace this one for some keys; nil: none
	asked *Made[int64]        // plans that replace this one for demands that bring a limit; nil: demands can't

	// Base is the plan under which states of keys are remembered: the plan itself, or the plan whose Asked returned it.
	Base *Plan

	Life time.Duration // how long units of a key affect decisions, by any clock

	Read        policy.ReadIdentifier // nil: identifiers are taken as they are
	Derives     []*Plan               // plans of derived demands, one for each part that Read returns
	HasFallback bool                  // some derived demands are only for calls that conversions deny
	Marked      bool                  // it is derived only for known parts
}

// NewPlan returns the plan of pol. exclusive says whether the store can lock keys.
func NewPlan(pol policy.Policy, o *Settings, exclusive bool) *Plan {
	behind := !exclusive && pol.Guarantee == policy.GuaranteeLocal
	if behind {
		pol.Counting = policy.CountingRows // a write behind that is repeated must not count twice
	}
	p := &Plan{RuleSet: count.NewRuleSet(pol, o.Timing.Slack()), Behind: behind}
	p.Blocks = p.BlockFor > 0 && p.Mode == policy.ModeEnforce
	p.Consistency = p.Consistency.WithDefault(o.Consistency)
	p.Promising = p.Consistency.Scope() != policy.ScopeNone
	space := p.space(o, p.Cell && !exclusive)
	p.Keys = []*keys.Keys{o.Keyer.For(space).CachedIn(o.keys)}
	if !p.Cell { // a compare-and-set spans one key, so a cell starts empty under a new hash key
		for i := range o.AlsoRead {
			p.Keys = append(p.Keys, o.AlsoRead[i].For(space).CachedIn(o.keys))
		}
	}
	for _, log := range p.Logs {
		p.LogWrites = append(p.LogWrites, store.LogWrite{Span: log.Span, TTL: o.Timing.Lasting(log.Window), Keep: log.Limit + 1})
	}
	p.Regional = exclusive || p.Consistency.Scope() == policy.ScopeDatacenter
	if p.Cell && !exclusive {
		p.Regional = o.Serial.Scope() == policy.ScopeDatacenter
	}
	p.Tally = p.Counters && !exclusive && p.Counting == policy.CountingRows
	p.TakesBack = !exclusive && p.Releases ||
		behind && !slices.ContainsFunc(p.Rules, func(r count.Rule) bool { return r.Kind != policy.Conversion })
	p.Abortable = !p.Cell || p.TakesBack && !slices.ContainsFunc(p.Rules, func(r count.Rule) bool { return r.Probe != 0 })
	p.Sums, p.Definition = p.sumLimits(), Definition{Policy: p.Name, Print: printOf(&p.Policy)}
	p.ByCell = p.Cell && !behind
	p.ResetTTL = o.Timing.Lasting(2*p.LongestWindow() + o.Timing.Slack())
	p.Life = min(p.ResetTTL+time.Minute, owner.LongestLife)
	if p.Base = p; p.FromRequest() >= 0 {
		p.asked = new(Made[int64])
	}
	return p
}

// sumLimits returns a hash of the limits whose units are in sums instead of events. Units can be given back only if they were
// counted for the same limits, in windows with the same starts.
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

// space returns the common part of the policy's keys. For keys of cells, the scope is that of the level of compare-and-set;
// for others, that of the levels of reads and writes.
func (p *Plan) space(o *Settings, ofCells bool) keys.KeySpace {
	space := keys.KeySpace{Policy: p.Name, Guarantee: p.Guarantee}
	scope := p.Consistency.Scope()
	if ofCells {
		space.SerialLevel = string(o.Serial)
		scope = o.Serial.Scope()
	}
	if scope == policy.ScopeDatacenter {
		space.Scope = o.Region()
	}
	return space
}

// HoldWrites returns p's logs for held events, which are kept only as long as they may count: until the hold ends by the
// slowest clock.
func (p *Plan) HoldWrites(hold time.Duration, o *Settings) []store.LogWrite {
	writes := slices.Clone(p.LogWrites)
	for i := range writes {
		writes[i].TTL = min(writes[i].TTL, o.holdTTL(hold))
	}
	return writes
}

// OnFailure returns the policy's behaviour if the store fails; in shadow mode it allows.
func (p *Plan) OnFailure() policy.OnStoreError {
	if p.Mode == policy.ModeShadow {
		return policy.OnStoreErrorAllow
	}
	return p.OnStoreError
}

// SmallBelow returns the number of used units from which on an owner writes a key: write_from of the smallest limit, but at
// least two. A key with fewer units is small, and only in memory. 0 means that no key is small.
func (p *Plan) SmallBelow() int64 {
	if p.WriteFrom == 0 {
		return 0
	}
	return max(2, (p.Smallest()*int64(p.WriteFrom)+99)/100)
}

// Smallest returns the smallest limit of p, in units.
func (p *Plan) Smallest() int64 {
	smallest := int64(policy.MaxLimit)
	for i := range p.Rules {
		smallest = min(smallest, p.Rules[i].Capacity)
	}
	return smallest
}

// HasConversion reports whether a limit of p is a conversion.
func (p *Plan) HasConversion() bool {
	return slices.ContainsFunc(p.Rules, func(r count.Rule) bool { return r.Kind == policy.Conversion })
}

// Text returns the policy in JSON, without parts that don't matter once a demand has its plan: the description, the
// identifiers that have numbers of their own, and a limit that came with the demand.
func (p *Plan) Text() []byte {
	same := p.Base.For("")
	return textOf(&same)
}

// printOf returns a hash of p's definition.
func printOf(p *policy.Policy) uint64 {
	sum := sha256.Sum256(textOf(p))
	return binary.BigEndian.Uint64(sum[:])
}

// textOf returns p in JSON, without its description.
func textOf(p *policy.Policy) []byte {
	short := *p
	short.Description = ""
	text, err := json.Marshal(&short)
	if err != nil { // can't happen: a policy has only strings and numbers
		return nil
	}
	return text
}

// Overridden returns p's policy with the numbers of limits instead of its own. It ignores limits that p does not have.
func (p *Plan) Overridden(limits []LimitOverride) policy.Policy {
	other := p.Policy
	other.Limits = slices.Clone(p.Limits)
	for i := range other.Limits {
		l := &other.Limits[i]
		j := slices.IndexFunc(limits, func(o LimitOverride) bool { return o.Name == l.Name })
		if j < 0 {
			continue
		}
		switch {
		case limits[j].Burst != 0:
			l.Burst = limits[j].Burst
		case l.Burst == l.Limit: // the burst was the default
			l.Burst = 0
		}
		*l = l.Asked(limits[j].Limit)
	}
	return other
}
