package count

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// conversion bounds the units that are sent and not confirmed. It counts in blocks of a window, which expire one at a
// time. Each confirmed unit covers as many sent units as the required share allows: with 20 %, five. Used units are the
// sent units that no confirmed unit covers. So a unit is denied if the limit's number of units was sent within the window
// and the confirmed share is too small. Even then a single unit may pass as a probe, once the limit's probe interval has
// passed since the last unit. A limit on unconfirmed units (Unconfirmed) bounds the uncovered units from the first one
// on, and has no probes.
var conversion = &algorithm{
	Algorithm: policy.Conversion,
	used:      usedOfConversion,
	wait:      waitForConversion,
	probe:     waitForProbe,
	add:       send,
	remove:    unsend,
	redate:    redateConversion,
}

// usedOfConversion returns the sent units that no confirmed unit covers, in the blocks that start after now − window.
func usedOfConversion(r *Rule, s *store.State, now store.Instant) int64 {
	c := s.ConversionOf(r.ID)
	if c == nil {
		return 0
	}
	sent, confirmed := int64(0), int64(0)
	for i := range c.Blocks {
		if b := &c.Blocks[i]; b.Start > now.Add(-r.Window) {
			sent = store.AddSaturating(sent, b.Sent)
			confirmed = store.AddSaturating(confirmed, b.Confirmed)
		}
	}
	if r.Unconfirmed {
		return max(0, sent-covered(confirmed, r.MinConversion))
	}
	passing := store.AddSaturating(covered(confirmed, r.MinConversion), 1) // how many units may be sent, given the confirmed ones
	return max(0, sent-max(0, passing-r.Capacity))
}

// covered returns how many sent units the confirmed ones cover: the largest number of which they are at least this
// percentage.
func covered(confirmed int64, percent int) int64 {
	hi, lo := bits.Mul64(uint64(max(0, confirmed)), 100)
	if hi >= uint64(percent) {
		return math.MaxInt64
	}
	units, _ := bits.Div64(hi, lo, uint64(percent))
	return int64(min(units, math.MaxInt64))
}

// waitForConversion returns the time until enough blocks have expired for cost to fit. Used units may rise meanwhile,
// as confirmed units expire, too.
func waitForConversion(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
	c := s.ConversionOf(r.ID)
	fits := func(at store.Instant) bool {
		return store.AddSaturating(usedOfConversion(r, s, at), cost) <= r.Capacity
	}
	if c == nil || fits(now) {
		return 0
	}
	soonest := store.Distant
	for i := range c.Blocks {
		if leaves := c.Blocks[i].Start.Add(r.Window); leaves > now && leaves < soonest && fits(leaves) {
			soonest = leaves
		}
	}
	return soonest.Sub(now)
}

// waitForProbe returns the time from now until one unit may pass although it does not fit.
func waitForProbe(r *Rule, s *store.State, now store.Instant) time.Duration {
	c := s.ConversionOf(r.ID)
	if r.Probe == 0 || r.Capacity == 0 {
		return math.MaxInt64
	}
	if c == nil {
		return 0
	}
	return max(0, c.Last.Add(r.Probe).Sub(now))
}

// send adds units to those sent at now.
func send(r *Rule, s *store.State, now store.Instant, units int64) {
	isProbe := units == 1 && r.algorithm.used(r, s, now) >= r.Capacity && waitForProbe(r, s, now) == 0
	c := s.ConversionOf(r.ID)
	if c == nil {
		s.Conversions = append(s.Conversions, store.Conversion{Limit: r.ID})
		c = &s.Conversions[len(s.Conversions)-1]
	}
	c.Last, c.Probe = max(c.Last, now), isProbe
	b := r.blockAt(c, now)
	if b.Start < r.blockStart(now) {
		*b = store.ConversionBlock{Start: r.blockStart(now)}
	}
	b.Sent = store.AddSaturating(b.Sent, units)
}

// Probes returns a bit for each of p's rules, the first rule's the lowest: set if the last unit that s holds for it was
// a probe.
func (p *RuleSet) Probes(s *store.State) (probes uint64) {
	for i := range p.Rules {
		if c := s.ConversionOf(p.Rules[i].ID); c != nil && c.Probe {
			probes |= 1 << i
		}
	}
	return probes
}

// InOneBlock reports whether each conversion of p counts units sent at these two instants in the same block.
func (p *RuleSet) InOneBlock(at, other store.Instant) bool {
	return !slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.Kind == policy.Conversion && r.blockStart(at) != r.blockStart(other)
	})
}

// SendAgain adds to the conversions of s units that were sent at the instant sent and counted in another state. probes
// has a bit for each rule, as Probes returns it. A limit does not count the units if they have left its window by now.
func (p *RuleSet) SendAgain(s *store.State, now, sent store.Instant, units int64, probes uint64) {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Kind != policy.Conversion || r.blockStart(sent) <= now.Add(-r.Window) {
			continue
		}
		latest := store.Instant(0)
		was := false
		if c := s.ConversionOf(r.ID); c != nil {
			latest, was = c.Last, c.Probe
		}
		send(r, s, sent, units)
		c := s.ConversionOf(r.ID)
		if c.Probe = probes>>i&1 == 1; latest > sent {
			c.Probe = was
		}
	}
}

// unsend removes units that were sent at the instant sent. If they were a probe and none are kept, the next probe may
// pass at once, because a whole probe interval lay between this one and the unit before it.
func unsend(r *Rule, s *store.State, now, sent store.Instant, units, kept int64) {
	c := s.ConversionOf(r.ID)
	if c == nil {
		return
	}
	if c.Probe && c.Last == sent && kept == 0 {
		c.Last, c.Probe = sent.Add(-r.Probe), false
	}
	if b := r.blockOf(s, c, now, sent); b != nil {
		b.Sent = max(b.Confirmed, b.Sent-units)
	}
}

// confirm records at now that units sent at the instant sent are confirmed, if they still count.
func (r *Rule) confirm(s *store.State, now, sent store.Instant, units int64) {
	c := s.ConversionOf(r.ID)
	if c == nil {
		return
	}
	if b := r.blockOf(s, c, now, sent); b != nil {
		b.Confirmed = min(b.Sent, store.AddSaturating(b.Confirmed, units))
	}
}

// blockOf returns the block of units that were sent at the instant sent, nil if it has expired. If sent is later than
// now, it was dated by a clock that has since been set back, and the block is not known: then blockOf returns the oldest
// block with an unconfirmed unit. So at no time are fewer units counted as sent than were sent, nor more as confirmed than
// were confirmed. After a reset it returns nil for such units, because the reset may be dated by either clock.
func (r *Rule) blockOf(s *store.State, c *store.Conversion, now, sent store.Instant) (oldest *store.ConversionBlock) {
	if sent <= now {
		if b := r.blockAt(c, sent); b.Start == r.blockStart(sent) {
			return b
		}
		return nil
	}
	if s.Reset > 0 {
		return nil
	}
	for i := range c.Blocks {
		b := &c.Blocks[i]
		if b.Start > now.Add(-r.Window) && b.Sent > b.Confirmed && (oldest == nil || b.Start < oldest.Start) {
			oldest = b
		}
	}
	return oldest
}

// redateConversion moves the units of blocks that are later than now's into now's block.
func redateConversion(r *Rule, s *store.State, now store.Instant) {
	c := s.ConversionOf(r.ID)
	if c == nil {
		return
	}
	c.Last = min(c.Last, now)
	here := r.blockAt(c, now)
	for i := range c.Blocks {
		b := &c.Blocks[i]
		if b.Start <= now {
			continue
		}
		moved := *b
		*b = store.ConversionBlock{}
		if here.Start != r.blockStart(now) {
			*here = store.ConversionBlock{Start: r.blockStart(now)}
		}
		here.Sent = store.AddSaturating(here.Sent, moved.Sent)
		here.Confirmed = store.AddSaturating(here.Confirmed, moved.Confirmed)
	}
}

// blockStart returns the start of the block that contains at.
func (r *Rule) blockStart(at store.Instant) store.Instant {
	return at.Floor(r.Window / policy.ConversionBlocks)
}

// blockAt returns the place in c for the block that contains at. The place may still have an earlier block.
func (r *Rule) blockAt(c *store.Conversion, at store.Instant) *store.ConversionBlock {
	number := r.blockStart(at) / store.Instant(r.Window.Milliseconds()/policy.ConversionBlocks)
	return &c.Blocks[(number%policy.ConversionBlocks+policy.ConversionBlocks)%policy.ConversionBlocks]
}
