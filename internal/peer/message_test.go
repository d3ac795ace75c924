package peer

import (
	"bytes"
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
	of := &demand.Definition{Policy: "p", Print: 1, Limit: 3, Text: []byte("{}")}
	for _, c := range []demand.Charge{
		{Definition: of, Op: count.OpTake, Cost: 2, ID: store.EventID{5}, Prepare: store.EventID{4}},
		{Definition: of, Op: count.OpReserve, Cost: 1, Hold: 1e9},
		{Definition: of, Op: owner.OpGiveBack, Back: &count.Entry{ID: store.EventID{6}, Cost: 1, Claimed: 2}},
		{Op: owner.OpAbort, Prepare: store.EventID{4}},
	} {
		sent, err := proto.Marshal(callOf(&c))
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
		c, err := chargeOf(&message)
		if err != nil {
			return
		}
		if d := c.Definition; d != nil && (len(d.Policy) > maxPolicy || len(d.Text) > maxDefinition) || len(c.OldKeys) >= maxKeys {
			t.Errorf("a call out of bounds is read: %+v", c)
		}
		again, err := chargeOf(callOf(c))
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v is sent on as %+v, %v", c, again, err)
		}
	})
}

// TestMessagesOutliveTheirCharges holds that a call which waits to be sent stays as it is when its caller, who has left, uses
// the charge anew.
func TestMessagesOutliveTheirCharges(t *testing.T) {
	c := take(1)
	c.ID, c.Back = store.EventID{3}, &count.Entry{ID: store.EventID{4}}
	waits := callOf(c)
	sent, err := proto.Marshal(waits)
	if err != nil {
		t.Fatal(err)
	}
	back := c.Back
	*c = demand.Charge{}
	*back = count.Entry{}
	if later, err := proto.Marshal(waits); err != nil || !bytes.Equal(later, sent) {
		t.Errorf("%x is sent, error %v; want %x", later, err, sent)
	}
}

// TestChecksOfNothingAreSent holds that an owner answers what remains of a key, which a settlement asks.
func TestChecksOfNothingAreSent(t *testing.T) {
	if _, err := chargeOf(callOf(&demand.Charge{Definition: &sms.Definition, Op: count.OpCheck})); err != nil {
		t.Errorf("a check of nothing: %v", err)
	}
}

// TestDatedErrorsAreSent holds that an asker hears of the reset that a claimed take must be dated after.
func TestDatedErrorsAreSent(t *testing.T) {
	var early *demand.DatedError
	err := read(answerOf(1, nil, fmt.Errorf("owner: %w", &demand.DatedError{After: 7})), take(1))
	if !errors.As(err, &early) || early.After != 7 {
		t.Errorf("it hears %v", err)
	}
}

// FuzzAnswer reads whatever an owner sends as an answer: without an error, it is read as the same after it was sent on.
func FuzzAnswer(f *testing.F) {
	for _, err := range []error{nil, owner.ErrRefused, owner.ErrUndefined} {
		c := take(1)
		sms.Begin(&c.Decision)
		c.Decision.Recorded = count.RecordedYes
		sent, failed := proto.Marshal(answerOf(1, c, err))
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
		c, again := take(1), take(1)
		if read(&message, c) != nil {
			return
		}
		if c.Decision.Recorded != count.RecordedYes {
			c.Decision.Entry = count.Entry{} // it is of no use, and not sent
		}
		if err := read(answerOf(1, c, nil), again); err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%+v is sent on as %+v, %v", c, again, err)
		}
	})
}
