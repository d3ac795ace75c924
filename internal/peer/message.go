package peer

import (
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// Bounds of what a peer may send; this instance's own calls are far within them.
const (
	maxKeys       = 16
	maxPolicy     = 64
	maxDefinition = 1 << 16 // bytes
)

// callOf returns the message of h.
func callOf(h *owner.Call) *peerpb.Call {
	call := &peerpb.Call{
		View: h.View, Policy: h.Policy, Print: h.Print, Definition: h.Definition, Op: string(h.Op), Cost: h.Cost, Limit: h.Limit,
		HoldMillis: h.Hold.Milliseconds(), Keys: [][]byte{h.Key.Bytes()}, AtOnce: h.AtOnce,
	}
	if h.ID != (store.EventID{}) {
		call.Id = h.ID[:]
	}
	if h.Prepare != (store.EventID{}) {
		call.Prepare = h.Prepare[:]
	}
	if b := h.Back; b != nil {
		call.Back = &peerpb.Back{
			Id: b.ID[:], At: int64(b.At), Cost: b.Cost, Claimed: int64(b.Claimed), Confirmed: b.Confirmed,
			Epoch: int64(b.Epoch), Kept: b.Kept, Repeats: b.Repeats, Again: b.Again,
		}
	}
	for _, key := range h.Old {
		call.Keys = append(call.Keys, key.Bytes())
	}
	return call
}

// peerCallOf returns the call in a message, or an error that names an invalid value.
func peerCallOf(call *peerpb.Call) (owner.Call, error) {
	h := owner.Call{
		Policy: call.GetPolicy(), Print: call.GetPrint(), Definition: call.GetDefinition(), Op: count.Op(call.GetOp()), Cost: call.GetCost(),
		View: call.GetView(), Limit: call.GetLimit(), Hold: time.Duration(call.GetHoldMillis()) * time.Millisecond, AtOnce: call.GetAtOnce(),
	}
	var err error
	if h.ID, err = idOf(call.GetId()); err != nil {
		return h, err
	}
	if h.Prepare, err = idOf(call.GetPrepare()); err != nil {
		return h, err
	}
	if b := call.GetBack(); b != nil {
		id, err := idOf(b.GetId())
		if err != nil || id == (store.EventID{}) {
			return h, fmt.Errorf("%w: an id of %d bytes", owner.ErrRefused, len(b.GetId()))
		}
		h.Back = &count.Entry{
			ID: id, At: store.Instant(b.GetAt()), Cost: b.GetCost(), Claimed: store.Instant(b.GetClaimed()),
			Confirmed: b.GetConfirmed(), Epoch: store.Instant(b.GetEpoch()), Kept: b.GetKept(), Repeats: b.GetRepeats(), Again: b.GetAgain(),
		}
	}
	keys := call.GetKeys()
	if len(keys) < 1 || len(keys) > maxKeys || len(h.Policy) > maxPolicy || len(h.Definition) > maxDefinition || !h.Valid() {
		return h, fmt.Errorf("%w: out of bounds", owner.ErrRefused)
	}
	for i, key := range keys {
		if len(key) != store.KeySize {
			return h, fmt.Errorf("%w: a key of %d bytes", owner.ErrRefused, len(key))
		}
		of := store.KeyFrom([store.KeySize]byte(key))
		if i == 0 {
			h.Key = of
		} else {
			h.Old = append(h.Old, of)
		}
	}
	return h, nil
}

// idOf returns the id in a message; the zero EventID for none.
func idOf(b []byte) (id store.EventID, err error) {
	if len(b) != 0 && len(b) != len(id) {
		return id, fmt.Errorf("%w: an id of %d bytes", owner.ErrRefused, len(b))
	}
	copy(id[:], b)
	return id, nil
}

// answerOf returns the message of a, or of err if that is not nil.
func answerOf(number uint64, a *owner.Answer, err error) *peerpb.Answer {
	answer := &peerpb.Answer{Number: number}
	if err != nil {
		answer.Failure, answer.Reason, answer.Recorded = peerpb.Failure_UNAVAILABLE, reasonOf(err), string(count.RecordedNo)
		if failed := (*count.StoreError)(nil); errors.As(err, &failed) {
			answer.Recorded = string(failed.Recorded)
		}
		switch early := (*demand.DatedError)(nil); {
		case errors.As(err, &early):
			answer.Failure, answer.After = peerpb.Failure_DATED, int64(early.After)
		case errors.Is(err, owner.ErrUndefined):
			answer.Failure = peerpb.Failure_UNDEFINED
		case errors.Is(err, owner.ErrRefused):
			answer.Failure = peerpb.Failure_REFUSED
		case errors.Is(err, counted.ErrInDoubt):
			answer.Failure = peerpb.Failure_IN_DOUBT
		case errors.Is(err, store.ErrOverloaded):
			answer.Failure = peerpb.Failure_OVERLOADED
		}
		return answer
	}
	answer.WouldAllow, answer.Remembered, answer.Recorded = a.WouldAllow, a.Remembered, string(a.Recorded)
	answer.SteadyNanos = int64(a.Steady)
	for _, v := range a.Verdicts {
		answer.Verdicts = append(answer.Verdicts, &peerpb.Verdict{
			Allowed: v.Allowed, Used: v.Used, Remaining: v.Remaining,
			ResetNanos: int64(v.ResetAfter), RetryNanos: int64(v.RetryAfter),
		})
	}
	if a.Recorded == count.RecordedYes {
		answer.Entry = &peerpb.Entry{Id: a.Entry.ID[:], At: int64(a.Entry.At), Epoch: int64(a.Entry.Epoch), Cost: a.Entry.Cost}
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

// read fills in a from answer, or returns the error in it.
func read(answer *peerpb.Answer, a *owner.Answer) error {
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
		return failedOf(recorded, fmt.Errorf("%w: %w", store.ErrUnavailable, counted.ErrInDoubt), answer)
	default:
		return failedOf(recorded, store.ErrUnavailable, answer)
	}
	a.WouldAllow, a.Remembered, a.Recorded = answer.GetWouldAllow(), answer.GetRemembered(), recorded
	a.Steady = time.Duration(answer.GetSteadyNanos())
	a.Verdicts = make([]count.Verdict, len(answer.GetVerdicts()))
	for i, v := range answer.GetVerdicts() {
		a.Verdicts[i] = count.Verdict{
			Allowed: v.GetAllowed(), Used: v.GetUsed(), Remaining: v.GetRemaining(),
			ResetAfter: time.Duration(v.GetResetNanos()), RetryAfter: time.Duration(v.GetRetryNanos()),
		}
	}
	if e := answer.GetEntry(); e != nil {
		if len(e.GetId()) != len(a.Entry.ID) {
			return fmt.Errorf("%w: %w", store.ErrUnavailable, errNonsense)
		}
		a.Entry = count.Entry{
			ID: store.EventID(e.GetId()), At: store.Instant(e.GetAt()), Epoch: store.Instant(e.GetEpoch()), Cost: e.GetCost(),
		}
	}
	return nil
}
