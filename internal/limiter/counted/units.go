package counted

import (
	"math"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// units are the units that one attempt writes for a batch.
type units struct {
	batch  []*demand.Charge
	now    store.Instant
	epoch  store.Instant // the latest reset before them; 0: none
	events []store.Event // one for each request of batch, in its order
	counts []store.Count // the sum of the batch, for each counter
	totals []store.Count // this process's running total for each of counts; nil: with counters
	dated  bool          // the events are stored and valid; only the counts must be written
	probes uint64        // of conversions in memory: the rules under which the last unit is a probe, as in count.RuleSet.Probes

	small bool // the owner has them in memory alone: see small.go
	grown bool // they are small, and must be written after all

	discounted totals.Refused // units that are subtracted from the state that was read

	mark uint64 // Denials.Since before the write
}

// newUnits returns units for batch, at the present instant or that of a dated request. It returns an error if this
// instance's clock is beyond the tolerance.
func (c *counted) newUnits(t *demand.Target, batch []*demand.Charge) (*units, error) {
	now, err := c.opts.Timing.Checked()
	if err != nil {
		return nil, err
	}
	epoch, _ := c.resets.Get(t.Key)
	own := &units{batch: batch, epoch: epoch, mark: c.denials.Since(t.Key)}
	now = max(now, epoch+1)
	if batch[0].IsDated() {
		now = batch[0].ID.Instant()
	}
	c.date(t.Plan, own, now)
	return own, nil
}

// date gives own new events and counts, at now.
func (c *counted) date(p *demand.Plan, own *units, now store.Instant) {
	own.now, own.dated, own.events = now, false, nil
	for _, r := range own.batch {
		id, at := c.ids.Next(now), now
		if r.IsDated() {
			id, at = r.ID, r.ID.Instant()
		}
		event := store.Event{ID: id, At: at, Cost: r.Cost}
		if r.Hold > 0 {
			event.Ends = at.Add(r.Hold)
		}
		own.events = append(own.events, event)
	}
	own.count(p)
}

// count computes u's counts from its batch.
func (u *units) count(p *demand.Plan) { u.counts = p.AppendCounts(nil, u.epoch, u.now, sumOf(u.batch)) }

// renew reports whether a reset before the read has removed some of own's units. It then makes new ones, to be
// written: removed units must not be admitted.
func (c *counted) renew(t *demand.Target, own *units, state *store.State) bool {
	eventsGone := state.Reset >= own.now
	if !eventsGone && (!t.Plan.Counters || state.Reset <= own.epoch) {
		return false
	}
	own.epoch = state.Reset
	c.noteReset(t.Key, state.Reset)
	switch {
	case eventsGone && !own.batch[0].IsDated():
		c.date(t.Plan, own, state.Reset+1)
	case eventsGone: // the caller must date the request again
		own.dated = false
	default:
		own.dated = true
		own.count(t.Plan)
	}
	return true
}

// noteReset remembers reset if it is the latest of key.
func (c *counted) noteReset(key store.Key, reset store.Instant) {
	if known, _ := c.resets.Get(key); known < reset {
		c.resets.Put(key, reset)
	}
}

func sumOf(batch []*demand.Charge) int64 {
	sum := int64(0)
	for _, r := range batch {
		sum = store.AddSaturating(sum, r.Cost)
	}
	return sum
}

// removeOwn removes own's units from state. It returns false if the read missed a write: some of own's units are not in
// state, although, in a log, fewer other events than the limit were read. endedBy is the instant by which a held event must
// end so as not to count among these.
func removeOwn(p *demand.Plan, own *units, state *store.State, endedBy store.Instant) (complete bool) {
	complete = true
	mine := make(map[store.EventID]bool, len(own.events))
	for _, e := range own.events {
		mine[e.ID] = true
	}
	for i := range state.Logs {
		log := &state.Logs[i]
		before := len(log.Events)
		log.Events, log.Sum = slices.DeleteFunc(log.Events, func(e store.Event) bool { return mine[e.ID] }), 0
		seen := before - len(log.Events)
		complete = complete && (seen == len(mine) || log.CountAfter(state.Reset, endedBy) >= p.Logs[i].Limit)
	}
	for i, add := range own.counts {
		var seen bool
		if own.totals != nil {
			seen = state.Replace(own.totals[i])
			add.Row = own.totals[i].Row
		} else {
			seen = slices.ContainsFunc(state.Counts, func(c store.Count) bool { return c.Same(add) && c.Units >= add.Units })
		}
		complete = complete && seen
		if seen || own.totals != nil {
			add.Units = -add.Units
			state.Add(add)
		}
	}
	return complete
}

// aheadOfLimit is the divisor of a limit that gives the most units to store ahead: they are lost if this process is
// killed.
const aheadOfLimit = 100

// ahead returns the number of units that may be stored ahead with u.
func (u *units) ahead() int64 {
	limits := u.batch[len(u.batch)-1].Decision.Limits()
	most := int64(math.MaxInt64)
	for i := range limits {
		most = min(most, limits[i].Remaining, limits[i].Limit.Limit/aheadOfLimit)
	}
	return most
}

// filter returns the units of the requests that keep accepts. It calls keep for each request in turn.
func (u *units) filter(keep func(i int, r *demand.Charge) bool) *units {
	part := &units{now: u.now, epoch: u.epoch}
	for i, r := range u.batch {
		if keep(i, r) {
			part.batch = append(part.batch, r)
			part.events = append(part.events, u.events[i])
		}
	}
	part.counts = slices.Clone(u.counts)
	for i := range part.counts {
		part.counts[i].Units = sumOf(part.batch)
	}
	return part
}
