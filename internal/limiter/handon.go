package limiter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Peers knows which instance owns a key, and hands calls on to it.
type Peers interface {
	// HandOn has the owner of h's key decide h, and fills in answer. It reports false where
	// this instance is to decide itself: it owns the key, or nobody else can be asked, or who
	// was asked surely did not decide. Errors are those of a Store, or a StoreError.
	HandOn(ctx context.Context, h *PeerCall, answer *PeerAnswer) (handed bool, err error)
}

// PeerCall is one demand on its way to the instance that owns its key. It holds keys, never an
// identifier.
type PeerCall struct {
	Policy string
	Print  uint64 // of the policy's definition: who has another one must not decide
	Key    Key    // that is written under
	Old    []Key  // that are read as well, while the hash key changes
	Op     Op     // OpCheck, OpRecord or OpTake
	Cost   int64  // units
}

// PeerAnswer is what the owner decided.
type PeerAnswer struct {
	Verdicts   []Verdict // one for each of the policy's limits, in their order
	WouldAllow bool
	Remembered bool
	Leased     bool
	Recorded   Recorded
	Entry      PeerEntry // what was counted, if Recorded is RecordedYes
}

// PeerEntry is what was counted for a PeerCall: what it takes beside the key to give it back.
type PeerEntry struct {
	ID    EventID
	At    Instant
	Epoch Instant // the reset that it was counted under; 0: none
	Cost  int64
}

// ErrRefused is a PeerCall that this instance does not decide: its policy is another one here, or
// is not handed on. Nothing was counted.
var ErrRefused = errors.New("this instance does not decide that")

// printOf returns what tells the definition of p from others, but for what only people read.
func printOf(p *Policy) uint64 {
	told := *p
	told.Description = ""
	text, err := json.Marshal(&told)
	if err != nil {
		return 0
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// handsOn reports whether c can be decided by another instance: alone, by its key, and with
// nothing held.
func (e *Engine) handsOn(c *charge) bool {
	p := c.plan
	return e.opts.Peers != nil && e.shared != nil && !p.behind && len(p.parts) == 0 &&
		c.hold == 0 && c.id == (EventID{}) && !c.ends && c.over == nil
}

// handOn has the owner of c's key decide c, and reports whether it did. Where it surely did not,
// this instance decides itself: it counts as the owner would.
func (e *Engine) handOn(ctx context.Context, c *charge) bool {
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	h := PeerCall{Policy: c.plan.Name, Print: c.plan.print, Key: c.key, Old: c.old, Op: c.op, Cost: c.cost}
	var a PeerAnswer
	handed, err := e.opts.Peers.HandOn(ctx, &h, &a)
	switch {
	case !handed:
		return false
	case err != nil:
		c.err = err
		if failed := (*StoreError)(nil); !errors.As(err, &failed) { // no answer, or one that can't be read
			c.err = &StoreError{Recorded: c.unanswered(), Err: err}
		}
		return true
	}
	c.err = a.fill(&c.decision, c.plan)
	return true
}

// unanswered says whether c's units count if it was sent and not answered.
func (c *charge) unanswered() Recorded {
	if c.op == OpCheck {
		return RecordedNo
	}
	return RecordedUnknown
}

// fill makes d what a says under p.
func (a *PeerAnswer) fill(d *Decision, p *plan) error {
	limits := p.begin(d)
	if len(a.Verdicts) != len(limits) {
		err := fmt.Errorf("%w: a peer answered for %d limits of %d", ErrUnavailable, len(a.Verdicts), len(limits))
		return &StoreError{Recorded: RecordedUnknown, Err: err}
	}
	for i := range limits {
		limits[i].Verdict = a.Verdicts[i]
	}
	d.conclude()
	d.Remembered, d.Leased, d.Recorded = a.Remembered, a.Leased, a.Recorded
	d.WouldAllow = a.WouldAllow
	d.Allowed = a.WouldAllow || p.Mode != ModeEnforce
	d.entry = entry{id: a.Entry.ID, at: a.Entry.At, epoch: a.Entry.Epoch, cost: a.Entry.Cost}
	return nil
}

// DecideForPeer decides what another instance handed on, and fills in a. Errors are those of
// Take, and ErrRefused. It tells no observer, and blocks nobody: the instance that was asked
// does.
func (e *Engine) DecideForPeer(ctx context.Context, h *PeerCall, a *PeerAnswer) error {
	p := e.plans.Load().of(h.Policy)
	if p == nil || p.print != h.Print || e.shared == nil || p.behind || len(p.parts) > 0 || len(h.Old) != len(p.keys)-1 {
		return ErrRefused
	}
	c := charge{target: target{plan: p, key: h.Key, old: h.Old}, op: h.Op, cost: h.Cost}
	now, err := e.instant()
	if err != nil {
		return err
	}
	e.shared.decide(ctx, &c, now)
	if c.err != nil {
		return c.err
	}
	d := &c.decision
	for i := range d.Limits() {
		a.Verdicts = append(a.Verdicts, d.Limits()[i].Verdict)
	}
	a.WouldAllow, a.Remembered, a.Leased, a.Recorded = d.WouldAllow, d.Remembered, d.Leased, d.Recorded
	a.Entry = PeerEntry{ID: d.entry.id, At: d.entry.at, Epoch: d.entry.epoch, Cost: d.entry.cost}
	return nil
}
