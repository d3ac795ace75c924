package limiter_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// version is what one conditional write made of a cell.
type version struct {
	cell    store.Cell
	expires int64                // of the cell, in seconds since the Unix epoch; 0: never
	when    time.Duration        // it took place
	known   [nodes]time.Duration // to each replica
}

// attempt is one conditional write. It takes place at one moment, whole, if its condition holds
// then; its caller may have given up long before.
type attempt struct {
	trip
	write   *store.Write
	when    time.Duration // never: it never does
	applied bool
}

// writeCell compares and sets.
func (c *cluster) writeCell(ctx context.Context, from *process, w *store.Write) error {
	kept := *w
	cell := *w.Cell
	kept.Cell = &cell
	var a *attempt
	c.enter(&arrival{from: from.n, kind: -2, key: w.Key, begin: func() {
		a = c.attempt(&kept)
		p := c.partition(w.Key)
		p.attempts = append(p.attempts, a)
	}})
	if err := from.await(ctx, a.trip); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(c.partition(w.Key), c.now())
	if !a.applied {
		return store.ErrConflict
	}
	return nil
}

// attempt draws when w takes place, and when that is heard of.
func (c *cluster) attempt(w *store.Write) *attempt {
	t, goes := c.departs()
	a := &attempt{trip: t, write: w, when: never}
	if !goes {
		return a
	}
	a.when = a.leaves + c.way() + c.way()
	var back [nodes]time.Duration
	for i := range nodes {
		a.reaches[i], back[i] = c.reach(a.when)
	}
	a.hear(back, w.Level)
	if c.chance(c.weather.lost) { // its coordinator stops half way
		a.answers, a.when = never, never
		if c.chance(0.7) {
			a.when = a.leaves + c.between(0, longPause)
			for i := range nodes {
				a.reaches[i], _ = c.reach(a.when)
			}
		}
	}
	c.spoil(&a.trip)
	return a
}

// advance has take place what was to take place by now.
func (c *cluster) advance(p *partition, now time.Duration) {
	slices.SortStableFunc(p.attempts, func(a, b *attempt) int { return cmp.Compare(a.when, b.when) })
	n := 0
	for ; n < len(p.attempts) && p.attempts[n].when <= now; n++ {
		c.take(p, p.attempts[n])
	}
	p.attempts = slices.Delete(p.attempts, 0, n)
}

// take has a take place, if its condition holds.
func (c *cluster) take(p *partition, a *attempt) {
	second := c.second(&a.trip)
	last := p.cellAt(len(p.versions)-1, second)
	if last.cell.Version != a.write.Cell.If {
		return
	}
	a.applied = true
	next := version{
		cell: store.Cell{Version: a.write.Cell.Version, Value: a.write.Cell.Value}, when: a.when, known: a.reaches,
	}
	if a.write.Cell.TTL > 0 {
		next.expires = second + int64(a.write.Cell.TTL/time.Second)
	}
	p.versions = append(p.versions, next)
}

// cellAt returns the i-th version as it is in this second, without what has expired.
func (p *partition) cellAt(i int, second int64) version {
	if i < 0 {
		return version{}
	}
	v := p.versions[i]
	if v.expires != 0 && v.expires <= second {
		v.cell = store.Cell{}
	}
	return v
}

// readCell reads a cell: serially, as of one moment, or at a level of plain reads, which
// may miss what is not yet answered.
func (c *cluster) readCell(ctx context.Context, from *process, q *store.Query) (store.State, error) {
	var t trip
	c.enter(&arrival{from: from.n, kind: -3, key: q.Key, begin: func() { t = c.travel(q.Level) }})
	if err := from.await(ctx, t); err != nil {
		return store.State{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.partition(q.Key)
	c.advance(p, c.now())
	i := p.visible(&t, c.now(), q.Level == policy.LevelSerial || q.Level == policy.LevelLocalSerial)
	return store.State{Cell: p.cellAt(i, c.second(&t)).cell}, nil
}

// visible returns which version t has seen. A serial read sees the last one that took
// place before it reached the replicas. A plain one sees what has come to those that it
// heard of; what was there before the last version is known to most, for that is made
// sure of before the next is accepted. Either makes what it found known to those it heard of.
func (p *partition) visible(t *trip, now time.Duration, serially bool) int {
	soonest := never
	for i := range nodes {
		if t.heard[i] {
			soonest = min(soonest, t.reaches[i])
		}
	}
	last := -1
	for last+1 < len(p.versions) && p.versions[last+1].when <= soonest {
		last++
	}
	seen := max(-1, last-1)
	if serially {
		seen = last
	}
	for i := max(0, last); i < len(p.versions) && !serially; i++ {
		if t.sees(&p.versions[i].known) {
			seen = i
		}
	}
	for i := range nodes {
		if t.heard[i] && seen >= 0 {
			p.versions[seen].known[i] = min(p.versions[seen].known[i], now)
		}
	}
	return seen
}

// await returns when trips are over, or ctx is, or the instance is dead; not while the
// instance stands still. One that stood still over its deadline may hear of either
// first.
func (i *process) await(ctx context.Context, trips ...trip) error {
	answers, failed := time.Duration(0), error(nil)
	for k := range trips {
		answers = max(answers, trips[k].answers)
		failed = errors.Join(failed, trips[k].fails)
	}
	if len(trips) > 1 && failed != nil { // some of it may be stored
		failed = errBroken
	}
	late := i.wait(ctx, answers)
	stood := i.stand()
	switch {
	case i.isDead():
		return errDead
	case late && (!stood || answers > i.world.cluster.now() || answers%2 == 0):
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
	return failed
}

// wait waits for a moment and reports whether ctx ended, or i died, before.
func (i *process) wait(ctx context.Context, until time.Duration) (late bool) {
	var answered <-chan time.Time
	if until < never {
		timer := time.NewTimer(until - i.world.cluster.now())
		defer timer.Stop()
		answered = timer.C
	}
	select {
	case <-answered:
		return false
	case <-ctx.Done():
	case <-i.dead:
	}
	return true
}
