package held

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A clock that was set back leaves state behind that is dated later than it says, and so does a
// file that a clock wrote which was ahead. Under a store that holds keys still there is one
// clock, so the later date is wrong: the engine dates such state as of now. Until then it
// counts, so nothing is admitted that it denies, and it counts for no longer than a window
// from now on.

// redate dates as of now what s, which was read for p and is ahead of at, has that is dated later, and has w do the
// same in the store. It returns the instant to decide at: at, unless it did so. The clock is read
// again, as what a call beside this one has just dated is no later than that.
func (x *Decider) redate(p *demand.Plan, s *store.State, at store.Instant, w *store.Write) store.Instant {
	now := x.opts.Timing.Instant()
	if !p.IsAhead(s, now) {
		return at
	}
	w.Present = now
	s.Reset = min(s.Reset, now-1)
	for i := range s.Logs {
		s.Logs[i].Redate(now)
	}
	w.Add = p.RedateCounts(s, now)
	p.RedateCells(s, now)
	if p.Cell {
		cell := cas.Shut(p, nil, s, &cas.Chain{}, x.ids.Next(now), now, x.opts)
		w.Cell = &cell
	}
	return now
}
