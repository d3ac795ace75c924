package join_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/join"
)

// sender keeps which calls went together. A request takes a second.
type sender struct {
	mu     sync.Mutex
	groups []string
}

func (s *sender) send(g *join.Group[string]) error {
	s.mu.Lock()
	s.groups = append(s.groups, fmt.Sprint(g.Values()))
	s.mu.Unlock()
	select {
	case <-time.After(time.Second):
		return nil
	case <-g.Context().Done():
		return context.Cause(g.Context())
	}
}

func (s *sender) mustHaveSent(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.groups, want) {
		t.Errorf("sent %q, want %q", s.groups, want)
	}
}

func newQueue(s *sender) *join.Queue[string] {
	return join.New(join.Options[string]{Requests: 1, MaxRequests: 1, MaxCalls: 3, MaxLen: 100, Send: s.send})
}

func enter(t *testing.T, q *join.Queue[string], value string, length int) *join.Call[string] {
	t.Helper()
	c := join.NewCall(value)
	c.Len, c.Context = length, t.Context()
	c.Slots = []join.Slot{join.Slot(value[0])}
	if err := q.Enter(c); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c
}

// TestCallsShareRequests has calls go alone at first and together then, within the bounds of a
// group.
func TestCallsShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sender)
		q := newQueue(s)
		first := enter(t, q, "a", 1)
		s.mustHaveSent(t, "[a]")
		for _, value := range []string{"b", "c", "d", "e"} {
			enter(t, q, value, 1)
		}
		long := enter(t, q, "f", 100)
		s.mustHaveSent(t, "[a]")
		<-first.Done()
		if first.Err() != nil {
			t.Error(first.Err())
		}
		q.Close() // waits for all
		<-long.Done()
		s.mustHaveSent(t, "[a]", "[b c d]", "[e]", "[f]")
		if n := q.UnderWay(); n != 0 {
			t.Errorf("%d demands are under way at the end", n)
		}
		if err := q.Enter(join.NewCall("g")); !errors.Is(err, join.ErrClosed) {
			t.Errorf("%v after Close", err)
		}
	})
}

// TestCallersLeave has one leave the queue, and another one its request, which ends with the
// last of its callers.
func TestCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sender)
		q := newQueue(s)
		sent := enter(t, q, "a", 1)
		waiting := enter(t, q, "b", 1)
		began := time.Now()
		if sent, gone := q.Leave(waiting, context.Canceled); sent || !gone {
			t.Errorf("left the queue: sent %v, gone %v", sent, gone)
		}
		if sent, gone := q.Leave(sent, context.Canceled); !sent || !gone {
			t.Errorf("left its request: sent %v, gone %v", sent, gone)
		}
		q.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("the request went on for %v", took)
		}
		s.mustHaveSent(t, "[a]")
	})
}
