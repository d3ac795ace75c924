package client_test

import (
	"context"
	"errors"
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
	s.Client = s.inMemory(&client.Options{Concurrency: 1})
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

// TestAlikeCallsOfAQuickService travel by more and more, and by few again once a trip was
// slow, failed, or was left by all of its callers; those of one that takes its time, by as
// many as before.
func TestAlikeCallsOfAQuickService(t *testing.T) {
	const quick, middling, slow = 1999 * time.Microsecond, 3999 * time.Microsecond, 4 * time.Millisecond
	for _, c := range []struct {
		name   string
		before func(b *bursts)
		takes  time.Duration // a trip of several
		want   string
	}{
		{"quick", func(*bursts) {}, quick, "[1 8 16 32 32 11]"},
		{"not quick", func(*bursts) {}, quick + time.Microsecond, "[1 8 8 8 8 8 8 8 8 8 8 8 8 3]"},
		{"few were quick", func(b *bursts) { b.mixed(quick, 7, 20) }, middling, "[1 8 8 8 8 8 8 8 8 8 8 8 8 3]"},
		{"was quick", func(b *bursts) { b.burst(quick, 99) }, middling, "[1 32 32 32 3]"},
		{"was quick, is slow", func(b *bursts) { b.burst(quick, 99) }, slow, "[1 32 8 8 8 8 8 8 8 8 3]"},
		{"failed", func(b *bursts) { b.burst(quick, 99); b.failing(99) }, middling, "[1 8 8 8 8 8 8 8 8 8 8 8 8 3]"},
		{"left", func(b *bursts) { b.burst(quick, 99); b.left(32) }, middling, "[1 8 8 8 8 8 8 8 8 8 8 8 8 3]"},
		{"alike demands of one call", func(b *bursts) { b.demands(8) }, middling, "[1 8 8 8 8 8 8 8 8 8 8 8 8 3]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBursts(t)
				c.before(b)
				if got := b.burst(c.takes, 99); got != c.want {
					t.Errorf("requests of %s calls, want %s", got, c.want)
				}
			})
		})
	}
}

// bursts are of alike calls that gather while another one travels.
type bursts struct {
	*service
	*client.Client
	takes atomic.Int64 // nanoseconds for a request of several
	fails atomic.Bool
}

func newBursts(t *testing.T) *bursts {
	b := &bursts{service: newService(t)}
	b.instead = func(w http.ResponseWriter, _ *http.Request) bool {
		saw := b.requests()
		took := 100 * time.Microsecond
		if saw[len(saw)-1].calls > 1 {
			took = time.Duration(b.takes.Load())
		}
		time.Sleep(took)
		if b.fails.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
		return b.fails.Load()
	}
	b.Client = b.inMemory(&client.Options{Concurrency: 1, MaxFailures: 1000})
	return b
}

// burst returns how many calls the requests had that n alike ones and another one went by.
func (b *bursts) burst(takes time.Duration, n int) string {
	b.t.Helper()
	b.takes.Store(int64(takes))
	before := len(b.sizes())
	mustAllow(b.t, b.ask(b.t.Context(), n))
	return fmt.Sprint(b.sizes()[before:])
}

// mixed has some alike calls travel with others.
func (b *bursts) mixed(takes time.Duration, alike, others int) {
	b.t.Helper()
	b.takes.Store(int64(takes))
	mustAllow(b.t, ask(b.t.Context(), b.Client, append(names(1+others), slices.Repeat([]string{"same"}, alike)...)...))
}

func (b *bursts) ask(ctx context.Context, n int) []<-chan result {
	return ask(ctx, b.Client, append([]string{"other"}, slices.Repeat([]string{"same"}, n)...)...)
}

// failing has n fail, each request at once.
func (b *bursts) failing(n int) {
	b.takes.Store(0)
	b.fails.Store(true)
	b.mustFail(b.ask(b.t.Context(), n))
	b.fails.Store(false)
}

// left has n be given up by their callers before a trip that takes long could be called slow.
func (b *bursts) left(n int) {
	b.takes.Store(int64(time.Second))
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Millisecond)
	defer cancel()
	all := b.ask(ctx, n)
	mustAllow(b.t, all[:1])
	b.mustFail(all[1:])
	time.Sleep(time.Second) // the service is done with it
}

func (b *bursts) mustFail(all []<-chan result) {
	b.t.Helper()
	for i, one := range all {
		if r := <-one; r.err == nil {
			b.t.Errorf("call %d: %+v", i, r.Decision)
		}
	}
	synctest.Wait()
}

// demands makes calls of n alike demands each, one after the other.
func (b *bursts) demands(n int) {
	var all []client.Demand
	for i := range n {
		all = append(all, one(fmt.Sprint("none", i), "same"))
	}
	for range 4 {
		if _, err := b.Take(b.t.Context(), all...); !errors.Is(err, client.ErrUnknownPolicy) {
			b.t.Error(err)
		}
	}
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
		c := s.inMemory(&client.Options{Concurrency: 1})
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
