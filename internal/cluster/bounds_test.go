package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestVerifyEndsWithItsContext holds that a caller that begins a read does not wait for it beyond its own context.
func TestVerifyEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFence(func(ctx context.Context) (bool, error) {
			<-ctx.Done()
			return false, ctx.Err()
		})
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := f.Verify(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the error is %v, want %v", err, context.DeadlineExceeded)
		}
		if took := time.Since(began); took > 20*time.Millisecond {
			t.Errorf("it took %v of 20ms", took)
		}
		time.Sleep(time.Second)
	})
}

// noHeartbeats is a store without heartbeats.
type noHeartbeats struct{ Store }

func (noHeartbeats) Heartbeats(context.Context) ([]Heartbeat, error) { return nil, nil }

// TestRefusalsOfTheDeadAreForgotten holds that members which are gone for good are not told of for
// ever, heartbeat by heartbeat.
func TestRefusalsOfTheDeadAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(nil, nil)
		p := &heartbeats{store: noHeartbeats{}, ways: &c.ways, heard: map[ID]*heard{"dead": {}}}
		c.Reach("dead", Refused)
		p.listen(t.Context())
		if c.ways.to("dead") != Refused {
			t.Error("a member that was heard of is forgotten")
		}
		for range forgetHeartbeatAt/longestDeaf + 2 {
			time.Sleep(longestDeaf)
			p.listen(t.Context())
		}
		if ids := c.ways.list(Refused); len(ids) > 0 {
			t.Errorf("%v refuse, and nobody has heard of them for a minute", ids)
		}
	})
}

// TestVerifyReadsTheOwnRow holds that a member which was set out, and does not know it, admits nothing.
func TestVerifyReadsTheOwnRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		membership := withAllSlots(t, s)
		if err := membership.terms[7].Verify(t.Context()); err != nil {
			t.Fatalf("a member that is in may not admit: %v", err)
		}
		if err := setOut(t.Context(), s, membership.self.ID); err != nil {
			t.Fatal(err)
		}
		if err := membership.terms[7].Verify(t.Context()); !errors.Is(err, ErrOut) {
			t.Errorf("a member that is out may admit: %v, want %v", err, ErrOut)
		}
	})
}

// TestNobodyActsOnAViewBeforeItIsInForce holds that a member decides for no slot by a view that
// another one, who may still decide by an earlier view, has not confirmed.
func TestNobodyActsOnAViewBeforeItIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		membership := withAllSlots(t, s)
		if _, err := s.Set(t.Context(), rowCell("other"), Version{}, encode(row{State: stateIn})); err != nil {
			t.Fatal(err)
		}
		next := View{Number: 3, Mode: Owners, Members: membership.view.Members, Must: []ID{"other", membership.self.ID}}
		if _, err := s.Set(t.Context(), viewCell, membership.at, encode(next)); err != nil {
			t.Fatal(err)
		}
		if err := membership.followView(t.Context()); err != nil {
			t.Fatal(err)
		}
		if membership.view.Number != 3 || membership.installed || membership.terms[7] != nil {
			t.Errorf("view %d, installed %t, slot 7 decided here %t: want view 3, not in force",
				membership.view.Number, membership.installed, membership.terms[7] != nil)
		}
	})
}
