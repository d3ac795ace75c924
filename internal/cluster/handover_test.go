package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/seen"
)

var somebody, somebodyElse = seen.Hash{A: 1, B: 2}, seen.Hash{A: 0x9e3779b97f4a7c15, B: 0xbf58476d1ce4e5b9}

// ofView returns a membership whose view lists it and another member, and the slots that it owns.
func ofView(t *testing.T, number int64, opts *Options) (s *membership, owned []int) {
	t.Helper()
	s = newMembership(New(nil, opts))
	s.self.Address = "here:1"
	s.view = View{Number: number, Mode: Owners, Members: []Member{s.self, {ID: "other", Address: "there:1"}}}
	s.installed, s.confirmed = true, number
	for slot, i := range s.view.owners() {
		if i == 0 {
			owned = append(owned, slot)
		}
	}
	return s, owned
}

// alone returns the view after s's, of another member alone.
func (s *membership) withoutSelf() View {
	return View{Number: s.view.Number + 1, Mode: Owners, Members: []Member{s.self, {ID: "new", Address: "new:1"}}}
}

// TestNoteFailsOnceTheTermIsOver checks that an instance that notes what it counts for gets an error if that may not
// have been handed over: it was heard, or it is refused.
func TestNoteFailsOnceTheTermIsOver(t *testing.T) {
	s, owned := ofView(t, 3, nil)
	term := s.term(owned[0])
	if err := term.Note(somebody, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	term.end()
	if err := term.Note(somebodyElse, time.Now().Add(time.Hour)); !errors.Is(err, ErrOut) {
		t.Errorf("noted after the end: %v, want %v", err, ErrOut)
	}
	if !term.known.keys.Has(somebody) {
		t.Error("what was noted before the end is not there")
	}
}

// TestKnowledgeIsForOneTerm hands key sets over for terms that begin with the view of the sets, and for other terms, before and
// after these begin.
func TestKnowledgeIsForOneTerm(t *testing.T) {
	for _, test := range []struct {
		what        string
		view, begin int64
		early       bool
		want        bool
	}{
		{"after it began", 4, 4, false, true},
		{"before it began", 4, 4, true, true},
		{"a later term", 4, 5, false, false},
		{"a later term, early", 4, 5, true, false},
		{"an earlier term", 4, 3, false, false},
	} {
		s, owned := ofView(t, 3, nil)
		slot := owned[0]
		var theirs seen.Set
		theirs.Add(somebody, time.Now().Add(time.Hour))
		s.publish()
		hand := func() { s.cluster.Take(test.view, []Handed{{Slot: slot, Layers: theirs.Layers()}}) }
		if test.early {
			hand()
		}
		s.view.Number = test.begin
		term := s.term(slot)
		s.terms[slot] = term
		s.publish()
		s.cluster.inbox.deliver(test.begin, []*Term{term})
		if !test.early {
			hand()
		}
		if got := term.IsNew(somebodyElse, time.Hour); got != test.want {
			t.Errorf("%s: it knows all keys: %v, want %v", test.what, got, test.want)
		}
		if term.IsNew(somebody, time.Hour) {
			t.Errorf("%s: a key that was handed over is new", test.what)
		}
	}
}

// TestWhatIsHandedOver has a member go from one view to another, and holds that it hands over what it knew
// only if it confirmed the view right before, and after it has confirmed the new one.
func TestWhatIsHandedOver(t *testing.T) {
	for _, test := range []struct {
		what                        string
		confirmed, confirmsNow, new int64
		want                        bool
		fails                       error
	}{
		{"the next view", 3, 4, 4, true, nil},
		{"not confirmed yet", 3, 3, 4, false, nil},
		{"a view was missed", 3, 5, 5, false, nil},
		{"the one before was not confirmed", 2, 4, 4, false, nil},
		{"nobody answers", 3, 4, 4, true, errLostAnswer},
	} {
		handed := make(map[int]bool)
		opts := &Options{HandOver: func(_ context.Context, to Member, view int64, slots []Handed) error {
			for _, h := range slots {
				handed[h.Slot] = to.ID == "new" && view == test.new
			}
			return test.fails
		}}
		s, owned := ofView(t, 3, opts)
		s.confirmed = test.confirmed
		for _, slot := range owned {
			s.terms[slot] = s.term(slot)
			s.terms[slot].known.complete.Store(slot != owned[0])
		}
		v := s.withoutSelf()
		v.Number = test.new
		if err := s.learn(v); err != nil {
			t.Fatal(err)
		}
		s.confirmed = test.confirmsNow
		s.handOverMoved(t.Context())
		s.handing.Wait()
		owners, told, failed := v.owners(), int64(0), int64(0)
		for _, slot := range owned {
			switch want := test.want && v.Members[owners[slot]].ID == "new" && slot != owned[0]; {
			case want && test.fails != nil:
				failed++
			case handed[slot] != want:
				t.Fatalf("%s: slot %d handed over: %v, want %v", test.what, slot, handed[slot], want)
			case want:
				told++
			}
		}
		if st := s.cluster.Status(); st.HandedOver != told || st.HandedInVain != failed {
			t.Errorf("%s: %d slots handed over, %d in vain; want %d and %d", test.what, st.HandedOver, st.HandedInVain, told, failed)
		}
	}
}

// TestLookingThroughCompletesKnowledge looks through all counted keys. The keys that it finds must not be new. While it fails,
// no key may be new, and it must be tried again unless there are too many keys.
func TestLookingThroughCompletesKnowledge(t *testing.T) {
	for _, test := range []struct {
		fails error
		want  bool // that all is known in the end
	}{{nil, true}, {errors.New("no answer"), true}, {ErrTooManyKeys, false}} {
		synctest.Test(t, func(t *testing.T) {
			var (
				mu           sync.Mutex
				slot, looked int
				fails        = test.fails
			)
			opts := &Options{LookThrough: func(_ context.Context, found func(int, seen.Hash, time.Time)) error {
				mu.Lock()
				defer mu.Unlock()
				looked++
				found(slot, somebody, time.Now().Add(time.Hour))
				found(Slots-1, somebody, time.Now().Add(time.Hour))
				return fails
			}}
			s, owned := ofView(t, 3, opts)
			slot = owned[0]
			term := s.term(slot)
			ctx, stop := context.WithCancel(t.Context())
			s.handing.Go(func() { s.lookThrough(ctx, []*Term{term}, true) })
			synctest.Wait()
			mu.Lock()
			if got := term.IsNew(somebodyElse, 100*time.Hour); looked != 1 || got != (fails == nil) {
				t.Errorf("looking failed: %v, after %d times: a key that was not found is new: %v", fails, looked, got)
			}
			if !errors.Is(fails, ErrTooManyKeys) {
				fails = nil
			}
			mu.Unlock()
			time.Sleep(time.Minute)
			stop()
			s.handing.Wait()
			if got := term.IsNew(somebodyElse, 100*time.Hour); got != test.want {
				t.Errorf("looking failed at first: %v: a key that was not found is new in the end: %v, want %v", test.fails, got, test.want)
			}
			if term.IsNew(somebody, time.Hour) {
				t.Error("a key that was found is new")
			}
		})
	}
}

// TestKnowledgeTravelsInMessagesOfBoundedSize holds that slots with many keys are not sent in one message.
func TestKnowledgeTravelsInMessagesOfBoundedSize(t *testing.T) {
	few := make([]Handed, 1000)
	if n := fitting(few); n != handedAtOnce {
		t.Errorf("%d slots without keys go together, want %d", n, handedAtOnce)
	}
	many := make([]Handed, 1000)
	for i := range many {
		many[i].Layers = []seen.Layer{{Bits: make([]uint64, wordsAtOnce/4)}}
	}
	if n := fitting(many); n != 4 {
		t.Errorf("%d slots of a quarter of a message each go together, want 4", n)
	}
	many[0].Layers[0].Bits = make([]uint64, 2*wordsAtOnce)
	if n := fitting(many); n != 1 {
		t.Errorf("%d slots go together after one that fills a message, want 1", n)
	}
}

// TestKnowledgeIsCompleteInTime holds that nothing is new that may have been counted for before the term,
// and that everything else is once that matters no more.
func TestKnowledgeIsCompleteInTime(t *testing.T) {
	s, owned := ofView(t, 3, nil)
	term := s.term(owned[0])
	if term.IsNew(somebody, time.Hour) {
		t.Error("a key is new to who has just begun")
	}
	term.began = time.Now().Add(-time.Hour - time.Second)
	if !term.IsNew(somebody, time.Hour) {
		t.Error("a key is not new that nobody asked for in all the time that matters")
	}
	if term.IsNew(somebody, 2*time.Hour) {
		t.Error("a key is new of which older counts matter")
	}
}
