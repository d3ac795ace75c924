package limiter

import (
	"context"
	"sync/atomic"
)

// fullKey is a denial under one plan, over a store that holds keys still, for as long as the next
// one would be the same: until something is counted for the key or given back, or what is counted leaves.
// Callers who don't stop are denied by it without the store.
type fullKey struct {
	changes       uint64 // that were noted before it was made
	cost, used    int64
	since, until  Instant // from when and until when it holds
	whole, passes Instant // when the limit is whole again, and when the same cost fits
}

// hopeless is the passes of a denial that no wait ends.
const hopeless Instant = -1

// remember has others know the denial of ch at now, over s, if the next one may be the same.
// changes is what was noted of its key before s was read.
func (x *exclusive) remember(ch *charge, s *State, now Instant, changes uint64) {
	p := ch.plan
	r := &p.rules[0]
	if ch.known == nil || !p.plain || p.Count == CountAll || len(p.rules) > 1 || r.algorithm.steady == nil || x.opts.forgetful {
		return
	}
	until := r.algorithm.steady(r, s, now)
	if until <= now {
		return
	}
	v := &ch.decision.Verdict
	f := &fullKey{
		changes: changes, cost: ch.cost, used: v.Used, since: now, until: until,
		whole: now.Add(v.ResetAfter), passes: now.Add(v.RetryAfter),
	}
	if v.RetryAfter == Never {
		f.passes = hopeless
	}
	ch.known.full.Store(f)
}

// recall decides ch at now, if what is remembered of its key does.
func (x *exclusive) recall(ch *charge, now Instant) bool {
	if ch.known == nil || ch.op == OpRecord {
		return false
	}
	f := ch.known.full.Load()
	if f == nil || f.cost != ch.cost || now < f.since || now >= f.until || f.changes != x.store.changes.of(&ch.key) {
		return false
	}
	v := Verdict{Used: f.used, Remaining: max(0, ch.plan.rules[0].capacity-f.used), ResetAfter: max(0, f.whole.Sub(now)), RetryAfter: Never}
	if f.passes != hopeless {
		v.RetryAfter = f.passes.Sub(now)
	}
	d := &ch.decision
	ch.plan.begin(d)
	d.Verdict, d.only[0].Verdict = v, v
	return true
}

// changes is how often keys changed, each counted together with some others.
type changes [changeMarks]atomic.Uint64

// changeMarks is enough that few of the keys that are full share one with a key that is not.
const changeMarks = 1 << 12

func (c *changes) of(key *Key) uint64 { return c[key.Prefix()%changeMarks].Load() }

func (c *changes) note(key *Key) { c[key.Prefix()%changeMarks].Add(1) }

// watched is a store that notes which keys were changed, as soon as they are.
type watched struct {
	Exclusive
	changes changes
}

// Write stores w.
func (s *watched) Write(ctx context.Context, w *Write) error {
	defer s.changes.note(&w.Key)
	return s.Exclusive.Write(ctx, w)
}

// WriteAll stores all of w.
func (s *watched) WriteAll(ctx context.Context, w []Write) error {
	defer func() {
		for i := range w {
			s.changes.note(&w[i].Key)
		}
	}()
	return s.Exclusive.WriteAll(ctx, w)
}

// Update reads, lets decide judge, and writes.
func (s *watched) Update(ctx context.Context, q *Query, decide func(*State, *Write)) error {
	defer s.changes.note(&q.Key)
	return s.Exclusive.Update(ctx, q, decide)
}

// UpdateAll reads, lets decide judge, and writes.
func (s *watched) UpdateAll(ctx context.Context, q []Query, decide func([]State, []Write)) error {
	defer func() {
		for i := range q {
			s.changes.note(&q[i].Key)
		}
	}()
	return s.Exclusive.UpdateAll(ctx, q, decide)
}
