package peer

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/prepared"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// Bounds of a peer's calls. This instance's own calls are far within them.
const (
	maxKeys       = 16
	maxPolicy     = 64
	maxDefinition = 1 << 16 // bytes
)

// callOf returns the message of c. The message shares no memory with c, which may be reused before the message is sent.
func callOf(c *demand.Charge) *peerpb.Call {
	call := &peerpb.Call{
		View: c.View, Op: string(c.Op), Cost: c.Cost, HoldMillis: c.Hold.Milliseconds(), Keys: [][]byte{c.Key.Bytes()},
		AtOnce: c.AtOnce, Id: bytesOf(&c.ID), Prepare: bytesOf(&c.Prepare),
	}
	for _, key := range c.OldKeys {
		call.Keys = append(call.Keys, key.Bytes())
	}
	if d := c.Definition; d != nil {
		call.Policy, call.Print, call.Limit, call.Definition = d.Policy, d.Print, d.Limit, d.Text
	}
	if b := c.Back; b != nil {
		call.Back = &peerpb.Back{
			Id: bytes.Clone(b.ID[:]), At: int64(b.At), Cost: b.Cost, Claimed: int64(b.Claimed), Confirmed: b.Confirmed,
			Epoch: int64(b.Epoch), Kept: b.Kept, Repeats: b.Repeats, Again: b.Again,
		}
	}
	return call
}

// chargeOf returns the charge in a message, or an error that names an invalid value.
func chargeOf(call *peerpb.Call) (c *demand.Charge, err error) {
	c = &demand.Charge{
		Op: count.Op(call.GetOp()), Cost: call.GetCost(), Hold: time.Duration(call.GetHoldMillis()) * time.Millisecond,
		View: call.GetView(), AtOnce: call.GetAtOnce(),
	}
	if c.ID, err = idOf(call.GetId()); err != nil {
		return c, err
	}
	if c.Prepare, err = idOf(call.GetPrepare()); err != nil {
		return c, err
	}
	if b := call.GetBack(); b != nil {
		c.Back = &count.Entry{
			At: store.Instant(b.GetAt()), Cost: b.GetCost(), Claimed: store.Instant(b.GetClaimed()),
			Confirmed: b.GetConfirmed(), Epoch: store.Instant(b.GetEpoch()), Kept: b.GetKept(), Repeats: b.GetRepeats(), Again: b.GetAgain(),
		}
		if c.Back.ID, err = idOf(b.GetId()); err != nil {
			return c, err
		}
	}
	for i, key := range call.GetKeys() {
		switch {
		case len(key) != store.KeySize:
			return c, fmt.Errorf("%w: a key of %d bytes", owner.ErrRefused, len(key))
		case i == 0:
			c.Key = store.KeyFrom([store.KeySize]byte(key))
		default:
			c.OldKeys = append(c.OldKeys, store.KeyFrom([store.KeySize]byte(key)))
		}
	}
	if c.Op != owner.OpCommit && c.Op != owner.OpAbort {
		c.Definition = &demand.Definition{
			Policy: call.GetPolicy(), Print: call.GetPrint(), Limit: call.GetLimit(), Text: call.GetDefinition(),
		}
	}
	n := len(call.GetKeys())
	if n < 1 || n > maxKeys || len(call.GetPolicy()) > maxPolicy || len(call.GetDefinition()) > maxDefinition || !isValid(c) {
		return c, fmt.Errorf("%w: out of bounds", owner.ErrRefused)
	}
	return c, nil
}

// isValid reports whether c has a known operation, and the fields that this needs. It does not check c against the policy.
func isValid(c *demand.Charge) bool {
	costs := func(units int64) bool { return units >= 1 && units <= policy.MaxCost }
	switch c.Op {
	case count.OpCheck: // a cost of 0 asks only for the remaining units
		return c.Cost == 0 || costs(c.Cost)
	case count.OpRecord, count.OpTake:
		return costs(c.Cost)
	case count.OpReserve:
		return costs(c.Cost) && c.Hold > 0 && c.Hold <= owner.LongestLife
	case owner.OpCommit, owner.OpAbort:
		return c.Prepare != store.EventID{}
	case owner.OpGiveBack, owner.OpSettle:
		b := c.Back
		return b != nil && b.ID != store.EventID{} && costs(b.Cost) && b.Kept >= 0 && b.Claimed >= 0
	}
	return c.Op == owner.OpReset
}

// bytesOf returns a copy of id; nil for the zero EventID.
func bytesOf(id *store.EventID) []byte {
	if *id == (store.EventID{}) {
		return nil
	}
	return bytes.Clone(id[:])
}

// idOf returns the id in a message; the zero EventID if there is none.
func idOf(b []byte) (id store.EventID, err error) {
	if len(b) != 0 && len(b) != len(id) {
		return id, fmt.Errorf("%w: an id of %d bytes", owner.ErrRefused, len(b))
	}
	copy(id[:], b)
	return id, nil
}

// answerOf returns the message of c's decision, or of err if that is not nil.
func answerOf(number uint64, c *demand.Charge, err error) *peerpb.Answer {
	answer := &peerpb.Answer{Number: number, Recorded: string(count.RecordedNo)}
	switch {
	case err != nil:
		answer.Failure, answer.Reason = peerpb.Failure_UNAVAILABLE, reasonOf(err)
		if failed, ok := errors.AsType[*count.StoreError](err); ok {
			answer.Recorded = string(failed.Recorded)
		}
		switch early, dated := errors.AsType[*demand.DatedError](err); {
		case dated:
			answer.Failure, answer.After = peerpb.Failure_DATED, int64(early.After)
		case errors.Is(err, owner.ErrUndefined):
			answer.Failure = peerpb.Failure_UNDEFINED
		case errors.Is(err, owner.ErrRefused):
			answer.Failure = peerpb.Failure_REFUSED
		case errors.Is(err, prepared.ErrInDoubt):
			answer.Failure = peerpb.Failure_IN_DOUBT
		case errors.Is(err, store.ErrOverloaded):
			answer.Failure = peerpb.Failure_OVERLOADED
		}
	case c.Decides():
		d := &c.Decision
		answer.WouldAllow, answer.Remembered, answer.Recorded = d.WouldAllow, d.Remembered, string(d.Recorded)
		answer.SteadyNanos = int64(c.Steady)
		for _, v := range d.Limits() {
			answer.Verdicts = append(answer.Verdicts, &peerpb.Verdict{
				Allowed: v.Allowed, Used: v.Used, Remaining: v.Remaining,
				ResetNanos: int64(v.ResetAfter), RetryNanos: int64(v.RetryAfter),
			})
		}
		if e := &d.Entry; d.Recorded == count.RecordedYes {
			answer.Entry = &peerpb.Entry{Id: e.ID[:], At: int64(e.At), Epoch: int64(e.Epoch), Cost: e.Cost}
		}
	}
	return answer
}

// maxReason bounds a failure's reason, in bytes.
const maxReason = 256

func reasonOf(err error) string {
	reason := err.Error()
	return reason[:min(len(reason), maxReason)]
}

// failedOf returns the error that the owner sent instead of a decision.
func failedOf(recorded count.Recorded, kind error, answer *peerpb.Answer) error {
	return &count.StoreError{Recorded: recorded, Err: fmt.Errorf("%w: the owner of the key: %s", kind, answer.GetReason())}
}

// read fills in c's decision from answer, or returns the error in it.
func read(answer *peerpb.Answer, c *demand.Charge) error {
	recorded := count.Recorded(answer.GetRecorded())
	switch recorded {
	case count.RecordedYes, count.RecordedNo, count.RecordedUnknown:
	default:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errNonsense)
	}
	switch answer.GetFailure() {
	case peerpb.Failure_NONE:
	case peerpb.Failure_REFUSED:
		return owner.ErrRefused
	case peerpb.Failure_UNDEFINED:
		return owner.ErrUndefined
	case peerpb.Failure_DATED:
		return &demand.DatedError{After: store.Instant(answer.GetAfter())}
	case peerpb.Failure_OVERLOADED:
		return failedOf(recorded, store.ErrOverloaded, answer)
	case peerpb.Failure_IN_DOUBT:
		return failedOf(recorded, fmt.Errorf("%w: %w", store.ErrUnavailable, prepared.ErrInDoubt), answer)
	default:
		return failedOf(recorded, store.ErrUnavailable, answer)
	}
	if !c.Decides() {
		return nil
	}
	d, e := &c.Decision, answer.GetEntry()
	limits := c.Plan.Begin(d)
	if len(answer.GetVerdicts()) != len(limits) || e != nil && len(e.GetId()) != len(d.Entry.ID) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errNonsense)
	}
	for i, v := range answer.GetVerdicts() {
		limits[i].Verdict = count.Verdict{
			Allowed: v.GetAllowed(), Used: v.GetUsed(), Remaining: v.GetRemaining(),
			ResetAfter: time.Duration(v.GetResetNanos()), RetryAfter: time.Duration(v.GetRetryNanos()),
		}
	}
	d.Conclude()
	d.WouldAllow, d.Remembered, d.Recorded = answer.GetWouldAllow(), answer.GetRemembered(), recorded
	d.Allowed = d.WouldAllow || d.Policy.Mode != policy.ModeEnforce
	c.Steady = time.Duration(answer.GetSteadyNanos())
	if e != nil {
		d.Entry = count.Entry{
			ID: store.EventID(e.GetId()), At: store.Instant(e.GetAt()), Epoch: store.Instant(e.GetEpoch()), Cost: e.GetCost(),
		}
	}
	return nil
}
