package client_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// slow is a service that takes each of a request's calls so long, in a bubble, and a client of
// it with one trip at a time.
type slow struct {
	*service
	*client.Client
	each atomic.Int64 // nanoseconds
}

func newSlow(t *testing.T) *slow {
	s := &slow{service: newService(t)}
	s.instead = func(_ http.ResponseWriter, _ *http.Request) bool {
		saw := s.requests()
		time.Sleep(time.Duration(min(8, int64(saw[len(saw)-1].calls)) * s.each.Load()))
		return false
	}
	s.Client = s.inMemory(&client.Options{Trips: 1})
	return s
}

// burst has eight calls of the same identifier gather while another one's travels, and
// returns by how many requests they went.
func (s *slow) burst(each time.Duration) int {
	s.t.Helper()
	s.each.Store(int64(each))
	before := len(s.sizes())
	mustAllow(s.t, ask(s.t.Context(), s.Client, append([]string{"other"}, slices.Repeat([]string{"same"}, 8)...)...))
	synctest.Wait()
	return len(s.sizes()) - before - 1
}

// TestAlikeCallsGoApart once no trip of them was fast for 50 ms, each taking 2 ms a call;
// others travel together as ever, and so do they when none of them is under way.
func TestAlikeCallsGoApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(t)
		for i := range 3 {
			if n := s.burst(2 * time.Millisecond); n != 1 {
				t.Fatalf("burst %d went by %d requests: it is not known yet", i, n)
			}
		}
		if n := s.burst(2 * time.Millisecond); n != 8 {
			t.Errorf("%d requests: they went together", n)
		}
		before := len(s.sizes())
		mustAllow(t, ask(t.Context(), s.Client, "first", "same", "a", "b"))
		if got := fmt.Sprint(s.sizes()[before:]); got != "[1 3]" {
			t.Errorf("requests of %s calls, none of them alike", got)
		}
	})
}

// TestAlikeCallsOfAQuickService travel by more and more, those of one that takes its time by
// as many as before, and by few again once it was slow.
func TestAlikeCallsOfAQuickService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(t)
		for i, c := range []struct {
			each  time.Duration // of eight at most
			alike int
			want  string
		}{
			{250 * time.Microsecond, 30, "[1 8 8 8 6]"},
			{time.Microsecond, 7, "[1 7]"}, // that is less than travel together anyway
			{249 * time.Microsecond, 99, "[1 8 16 32 32 11]"},
			{time.Millisecond, 99, "[1 32 32 32 3]"},
			{5 * time.Millisecond, 99, "[1 32 32 32 3]"}, // others go because it is late
			{250 * time.Microsecond, 30, "[1 8 8 8 6]"},
		} {
			time.Sleep(10 * time.Second) // they would go apart before
			s.each.Store(int64(c.each))
			before := len(s.sizes())
			mustAllow(s.t, ask(t.Context(), s.Client, append([]string{"other"}, slices.Repeat([]string{"same"}, c.alike)...)...))
			if got := fmt.Sprint(s.sizes()[before:]); got != c.want {
				t.Errorf("burst %d: requests of %s calls, want %s", i, got, c.want)
			}
		}
	})
}

// TestAMachineThatIsBusyNowAndThen holds up every other trip.
func TestAMachineThatIsBusyNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(t)
		for i := range 20 {
			if n := s.burst([]time.Duration{100 * time.Microsecond, 2 * time.Millisecond}[i%2]); n != 1 {
				t.Fatalf("burst %d went by %d requests", i, n)
			}
		}
	})
}

// TestAlikeCallsThatGoApartAreBounded too.
func TestAlikeCallsThatGoApartAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow(t)
		for range 4 {
			s.burst(2 * time.Millisecond)
		}
		before := len(s.sizes())
		s.each.Store(int64(time.Second))
		all := ask(t.Context(), s.Client, slices.Repeat([]string{"same"}, 200)...)
		if n := len(s.sizes()) - before; n != 65 { // the first, and 64 that go past those that gather
			t.Errorf("%d requests at the same time", n)
		}
		s.each.Store(0)
		mustAllow(t, all)
	})
}

// TestAlikeCallsOfASlowService has one that takes 3 ms for each of several alike calls: for a
// while they go as requests of their own then, which it joins itself, while others travel
// together as ever.
func TestAlikeCallsOfASlowService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		s.instead = func(_ http.ResponseWriter, r *http.Request) bool {
			saw := s.requests()
			time.Sleep(time.Duration(min(8, saw[len(saw)-1].calls)) * 3 * time.Millisecond)
			return false
		}
		c := s.inMemory(&client.Options{Trips: 1})
		same := strings.Split(strings.Repeat("same ", 20), " ")[:20]
		mustAllow(t, ask(t.Context(), c, same...))
		before := len(s.requests())
		if before > 4 {
			t.Fatalf("requests of %v calls: it is not known to be slow yet", s.sizes())
		}
		mustAllow(t, ask(t.Context(), c, same...))
		before = len(s.requests())
		began := time.Now()
		mustAllow(t, ask(t.Context(), c, same...))
		if took := time.Since(began); took != 3*time.Millisecond || len(s.requests()) != before+20 {
			t.Errorf("20 alike calls took %v, by %d requests", took, len(s.requests())-before)
		}
		mustAllow(t, ask(t.Context(), c, names(20)...))
		if got := fmt.Sprint(s.sizes()[before+20:]); got != "[1 19]" {
			t.Errorf("requests of %s others", got)
		}
		time.Sleep(6 * time.Second) // it is tried again
		before = len(s.requests())
		mustAllow(t, ask(t.Context(), c, same...))
		if n := len(s.requests()) - before; n > 6 {
			t.Errorf("requests of %v calls, much later", s.sizes()[before:])
		}
		if n := s.used("same"); n != 80 {
			t.Errorf("%d units were taken", n)
		}
	})
}
