package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// late is an instance that runs, and a member that gives signs of life and confirms nothing, in a view that waits for
// both and is not in force.
type late struct {
	*script
	lives     *Cluster
	lags      Member
	installed View // the one before
}

// newLate returns them; gone are members of that view whose rows say out.
func newLate(t *testing.T, gone ...Member) *late {
	l := &late{script: newScript(), lags: Member{ID: "lags", Address: "127.0.0.1:2"}}
	l.lives = runs(t, l)
	time.Sleep(time.Second)
	ctx := t.Context()
	view, at, err := readView(ctx, l, true)
	if err != nil || !l.lives.Status().Installed {
		t.Fatalf("view %+v, error %v", view, err)
	}
	l.installed = view
	l.join(t, l.lags)
	for _, m := range gone {
		if _, err := l.Set(ctx, rowCell(m.ID), Version{}, encode(row{State: stateOut})); err != nil {
			t.Fatal(err)
		}
	}
	next := view.next(append(append(view.Members, l.lags), gone...), ownership{mode: Owners}, nil)
	next.Must = append(next.Must, l.lags.ID)
	if _, err := l.Set(ctx, viewCell, at, encode(next)); err != nil {
		t.Fatal(err)
	}
	return l
}

// join makes m's row, and has m give signs of life until the test ends.
func (l *late) join(t *testing.T, m Member) {
	t.Helper()
	if _, err := l.Set(t.Context(), rowCell(m.ID), Version{}, encode(row{State: stateIn, Address: m.Address})); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for count := int64(1); ctx.Err() == nil; count++ {
			_ = l.Heartbeat(ctx, Heartbeat{Member: m, Count: count})
			select {
			case <-time.After(heartbeatEvery):
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
}

// TestMembersThatConfirmLateAreSetOut holds that a member which lives and does not confirm a view holds it up for
// confirmWithin, and no longer.
func TestMembersThatConfirmLateAreSetOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLate(t)
		time.Sleep(confirmWithin - 100*time.Millisecond)
		if st, err := standingOf(t.Context(), l, l.lags.ID); err != nil || st.out {
			t.Errorf("before its time is over it stands as %+v, error %v; want in", st, err)
		}
		time.Sleep(time.Second)
		if st, err := standingOf(t.Context(), l, l.lags.ID); err != nil || !st.out {
			t.Errorf("after that it stands as %+v, error %v; want out", st, err)
		}
		if !l.lives.Status().Installed {
			t.Error("no view is in force")
		}
	})
}

// TestNobodyJoinsAViewThatIsNotInForce holds that a view which is not in force is followed by smaller ones alone, and
// that new members come after these: else each of them could hold up the next.
func TestNobodyJoinsAViewThatIsNotInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := Member{ID: "gone", Address: "127.0.0.1:4"}
		l := newLate(t, gone)
		joins := Member{ID: "joins", Address: "127.0.0.1:3"}
		l.join(t, joins)
		waited := l.installed.Number + 1
		for until := time.Now().Add(3 * confirmWithin); time.Now().Before(until); time.Sleep(time.Millisecond) {
			v, _, err := readView(t.Context(), l, true)
			if err != nil {
				t.Fatal(err)
			}
			if v.Number > waited+1 {
				if !v.Lists(joins.ID) {
					t.Errorf("view %d does not list who joins", v.Number)
				}
				return
			}
			if v.Number == waited+1 && (v.Lists(joins.ID) || v.Lists(gone.ID)) {
				t.Fatalf("view %d lists %v while the one before is not in force", v.Number, idsOf(v.Members))
			}
		}
		t.Error("who joins is in no view")
	})
}

// TestCallsOfALaterViewWait checks that a member that is handed a call by one that knows a later view does not decide
// by its own: it may own the slot no longer.
func TestCallsOfALaterViewWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runs(t, newScript())
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if term, err := c.EnterFor(ctx, 0, c.Known()+1); term != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it decides by %+v, error %v; want none before it knows that view", term, err)
		}
		if term, err := c.EnterFor(t.Context(), 0, c.Known()); err != nil {
			t.Errorf("by the view that it knows: %v", err)
		} else {
			term.Leave()
		}
	})
}

// TestTermThatEndsWhileTheRowIsReadAdmitsNothing holds that a row which says in is not enough: the slot may have
// moved since the read began, and its next owner may have read the key.
func TestTermThatEndsWhileTheRowIsReadAdmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		var ends atomic.Pointer[Term] // while the row of its member is read
		s.get = func(name string, latest bool) (Cell, error) {
			if term := ends.Load(); term != nil && name == rowCell(term.membership.self.ID) {
				term.end()
			}
			return s.simStore.Get(context.WithoutCancel(t.Context()), name, latest)
		}
		c := runs(t, s)
		p, err := c.Enter(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Term.Leave()
		ends.Store(p.Term)
		if err := p.Term.Verify(t.Context()); !errors.Is(err, ErrOut) {
			t.Errorf("error %v, want %v", err, ErrOut)
		}
	})
}
