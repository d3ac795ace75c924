package peer

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// FuzzCall reads whatever a peer sends as a call: one that is read has bounds, and is read as the same after it was sent on.
func FuzzCall(f *testing.F) {
	for _, call := range []owner.Call{
		{Policy: "p", Print: 1, Op: count.OpTake, Cost: 2, Limit: 3, ID: store.EventID{5}, Prepare: store.EventID{4}, Definition: []byte("{}")},
		{Policy: "p", Op: count.OpReserve, Cost: 1, Hold: 1e9},
		{Policy: "p", Op: owner.OpGiveBack, Back: &count.Entry{Cost: 1, Claimed: 2}},
	} {
		sent, err := proto.Marshal(callOf(&call))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var message peerpb.Call
		if proto.Unmarshal(sent, &message) != nil {
			return
		}
		call, err := peerCallOf(&message)
		if err != nil {
			return
		}
		if len(call.Policy) > maxPolicy || len(call.Definition) > maxDefinition || len(call.Old) >= maxKeys {
			t.Errorf("a call out of bounds is read: %+v", call)
		}
		again, err := peerCallOf(callOf(&call))
		if err != nil || !reflect.DeepEqual(again, call) {
			t.Errorf("%+v is sent on as %+v, %v", call, again, err)
		}
	})
}

// TestChecksOfNothingAreSent holds that an owner answers what remains of a key, which a settlement asks.
func TestChecksOfNothingAreSent(t *testing.T) {
	call := owner.Call{Policy: "p", Op: count.OpCheck}
	if _, err := peerCallOf(callOf(&call)); err != nil {
		t.Errorf("a check of nothing: %v", err)
	}
}

// TestDatedErrorsAreSent holds that an asker hears of the reset that a claimed take must be dated after.
func TestDatedErrorsAreSent(t *testing.T) {
	var early *demand.DatedError
	err := read(answerOf(1, nil, fmt.Errorf("owner: %w", &demand.DatedError{After: 7})), new(owner.Answer))
	if !errors.As(err, &early) || early.After != 7 {
		t.Errorf("it hears %v", err)
	}
}

// FuzzAnswer reads whatever an owner sends as an answer: without an error, it is read as the same after it was sent on.
func FuzzAnswer(f *testing.F) {
	for _, err := range []error{nil, owner.ErrRefused, owner.ErrUndefined} {
		sent, failed := proto.Marshal(answerOf(1, &owner.Answer{Recorded: count.RecordedYes, Verdicts: make([]count.Verdict, 1)}, err))
		if failed != nil {
			f.Fatal(failed)
		}
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		var message peerpb.Answer
		if proto.Unmarshal(sent, &message) != nil {
			return
		}
		var a, again owner.Answer
		if read(&message, &a) != nil {
			return
		}
		if a.Recorded != count.RecordedYes {
			a.Entry = count.Entry{} // it is of no use, and not sent
		}
		if err := read(answerOf(1, &a, nil), &again); err != nil || !reflect.DeepEqual(again, a) {
			t.Errorf("%+v is sent on as %+v, %v", a, again, err)
		}
	})
}
