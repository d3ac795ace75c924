package limiter

import (
	"cmp"
	"slices"
	"time"
)

// target is one identifier under one policy: where it is counted.
type target struct {
	plan *plan
	key  Key   // under the key that is written with
	cell Key   // under which its buckets are, where they are decided apart
	old  []Key // under those that are read as well, while the hash key changes
}

// of returns the target of id.
func (p *plan) of(id Identifier) target {
	var t target
	p.locate(&t, id)
	return t
}

// locate makes t, which is zero, the target of id.
func (p *plan) locate(t *target, id Identifier) {
	t.plan, t.key = p, p.keys[0].Of(id)
	if len(p.keys) > 1 || len(p.parts) > 0 {
		t.locateOthers(id)
	}
}

// locateOthers adds to t, of id, the keys that it has beside the first.
func (t *target) locateOthers(id Identifier) {
	for _, keys := range t.plan.keys[1:] {
		t.old = append(t.old, keys.Of(id))
	}
	for _, part := range t.plan.parts {
		if part.cell {
			t.cell = part.keys[0].Of(id)
		}
	}
}

// KeyOf returns the key that id is counted under: that of the hash key that is written
// with. Errors wrap ErrInvalid or ErrUnknownPolicy.
func (e *Engine) KeyOf(policy string, id Identifier) (Key, error) {
	p, id, _, err := e.planOf(policy, id)
	if err != nil {
		return Key{}, err
	}
	return p.keys[0].Of(id), nil
}

// as returns t under another plan of its policy, under which there may be other keys.
func (t target) as(p *plan) target {
	t.plan = p
	if p.cell && p.limit != nil {
		t.key = t.cell
	}
	if len(p.keys) == 1 {
		t.old = nil
	}
	return t
}

// merge adds to s what was read under another key of the same target. Cells are
// not merged: a condition spans one key.
func (s *State) merge(other *State) {
	s.Reset = max(s.Reset, other.Reset)
	for i := range s.Logs {
		if len(other.Logs[i].Events) == 0 {
			continue
		}
		events := slices.Concat(s.Logs[i].Events, other.Logs[i].Events)
		slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
		s.Logs[i] = Log{Events: events}
	}
	for _, c := range other.Counts {
		s.add(c)
	}
}

// charge is one demand on its way through a store: what is asked, and what came of
// it.
type charge struct {
	target
	op   Op
	cost int64
	hold time.Duration // for how long the units are held unless they are settled; 0: they stay
	id   EventID       // of its event; zero: the store's decider makes one
	over *override     // of its key; nil: none
	ends bool          // it has no more time than its context; else a store timeout, which others may share
	told bool          // its decision is made

	placed bool // its event may have been written to a log, whether it counts or not

	right Right // by which it is decided; nil: nobody owns keys

	prepare EventID // under which it is prepared, to be committed or aborted; zero: it stays
	atOnce  bool    // it is not to wait for other calls: the error wraps ErrInDoubt then
	asked   bool    // somebody was asked to decide it
	owner   Peer    // who was; nil: this instance

	still *stillCharge // memory for deciding it alone; nil: it is to be found

	decision Decision
	err      error
}

// entry is what was counted for a target: what it takes beside that to give it back.
type entry struct {
	id    EventID
	at    Instant
	epoch Instant // the reset that it was counted under
	cost  int64
	held  time.Duration // for how long it was, of a reservation that is over; else 0
}

// poured returns when e's units were poured into a bucket. If that was by a clock that was set back
// since, it is known of what was held, unless a reset may have come between.
func (e *entry) poured(now, reset Instant) Instant {
	if e.at > now && e.held > 0 && e.epoch == reset {
		return now.Add(-e.held)
	}
	return e.at
}

// stands reports whether d, under its policy's mode, lets the call that it is a part
// of pass.
func (d *Decision) stands() bool { return d.WouldAllow || d.Policy.Mode != ModeEnforce }
