package totals

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// slowStore keeps nothing, and acknowledges a write once it is told to.
type slowStore struct {
	store.Store
	stored, acknowledge chan struct{} // nil: at once
}

func (s *slowStore) Write(context.Context, *store.Write) error {
	stored, acknowledge := s.stored, s.acknowledge
	if stored != nil {
		close(stored)
		<-acknowledge
	}
	return nil
}

func (s *slowStore) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, s, w, wrote)
}

func (s *slowStore) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, s, w, q)
}

// TestAheadEndsWithALaterTotal holds that nothing is spent of what is stored ahead once a total without it was sent,
// whichever of the two is acknowledged last.
func TestAheadEndsWithALaterTotal(t *testing.T) {
	s := new(slowStore)
	totals := New(s, store.NewEventIDs(), &clock.Timing{})
	now := totals.timing.Instant()
	w := &store.Write{Key: store.Key{}, Tally: true, Add: []store.Count{{Start: now, Expires: now.Add(time.Hour), Units: 8}}}
	one := []store.Count{w.Add[0]}
	one[0].Units = 1
	if err := totals.WriteAhead(t.Context(), w, 100); err != nil || !totals.Spend(w.Key, one) {
		t.Fatalf("nothing is stored ahead: %v", err)
	}
	if err := totals.DropAheadOf(t.Context(), w.Key); err != nil || totals.Spend(w.Key, one) {
		t.Errorf("units are spent that the store has no more: %v", err)
	}
	s.stored, s.acknowledge = make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() { done <- totals.WriteAhead(t.Context(), w, 100) }()
	<-s.stored
	first := s.acknowledge
	s.stored, s.acknowledge = nil, nil
	if totals.Spend(w.Key, one) {
		t.Error("units are spent before they are acknowledged")
	}
	if err := totals.DropAheadOf(t.Context(), w.Key); err != nil {
		t.Fatal(err)
	}
	close(first)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if totals.Spend(w.Key, one) {
		t.Error("units are spent that a later total has no more")
	}
}

// TestAheadIsOfTheWriteThatIsAcknowledged holds that of two writes on their way the first makes nothing spent of the second.
func TestAheadIsOfTheWriteThatIsAcknowledged(t *testing.T) {
	totals := New(new(slowStore), store.NewEventIDs(), &clock.Timing{})
	now := totals.timing.Instant()
	w := &store.Write{Tally: true, Add: []store.Count{{Start: now, Expires: now.Add(time.Hour), Units: 8}}}
	mine := totals.of(w.Key)
	first := mine.addAhead(w, 100, totals.timing)[0].Stamp
	second := mine.addAhead(w, 100, totals.timing)[0].Stamp
	one := []store.Count{w.Add[0]}
	one[0].Units = 1
	if mine.gain(first); totals.Spend(w.Key, one) {
		t.Error("units of the second are spent once the first is acknowledged")
	}
	if mine.gain(second); !totals.Spend(w.Key, one) {
		t.Error("units of the second are not spent once it is acknowledged")
	}
}
