package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// held is a service behind a gate, in a bubble, and a client of it with one trip at a time.
func held(t *testing.T, opts client.Options) (*service, *gate, *client.Client) {
	s, g := newService(t), newGate()
	s.instead = func(_ http.ResponseWriter, r *http.Request) bool {
		g.hold(r)
		return r.Context().Err() != nil
	}
	opts.Concurrency = 1
	return s, g, s.inMemory(&opts)
}

// ask takes a unit of api for each identifier, all at the same time.
func ask(ctx context.Context, c *client.Client, identifiers ...string) (all []<-chan result) {
	for _, identifier := range identifiers {
		all = append(all, asking(func() (client.Decision, error) { return c.Take(ctx, one("api", identifier)) }))
		synctest.Wait() // until it waits in the queue, so that the order is known
	}
	return all
}

func mustAllow(t *testing.T, all []<-chan result) {
	t.Helper()
	for i, a := range all {
		if r := <-a; r.err != nil || !r.Allowed {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// sizes returns how many calls each request had.
func (s *service) sizes() (list []int) {
	for _, r := range s.requests() {
		list = append(list, r.calls)
		if (r.calls > 1) != (r.path == "/v1/batch") {
			s.t.Errorf("%d calls went to %s", r.calls, r.path)
		}
	}
	return list
}

// TestCallsTravelTogether holds the first call's request up: those that come meanwhile go
// in one, and each has an answer of its own.
func TestCallsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{})
		all := ask(t.Context(), c, names(50)...)
		denied := asking(func() (client.Decision, error) { return c.Take(t.Context(), one("closed", "x")) })
		wrong := asking(func() (client.Decision, error) { return c.Take(t.Context(), one("nosuch", "x")) })
		checked := asking(func() (client.Decision, error) { return c.Check(t.Context(), one("sms-send", "x")) })
		synctest.Wait()
		g.open()
		mustAllow(t, all)
		if r := <-denied; r.err != nil || r.Allowed || r.RetryAfter != client.Never {
			t.Errorf("%+v", r)
		}
		if r := <-wrong; !errors.Is(r.err, client.ErrUnknownPolicy) {
			t.Errorf("%+v", r)
		}
		if r := <-checked; r.err != nil || r.Policy != "sms-send" || r.Used != 0 {
			t.Errorf("%+v", r)
		}
		if got := fmt.Sprint(s.sizes()); got != "[1 52]" {
			t.Errorf("requests of %s calls", got)
		}
	})
}

// TestALoneCallWaitsForNobody makes calls one after the other: each is a request of its own,
// and no time passes.
func TestALoneCallWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		c := s.inMemory(nil)
		began := time.Now()
		for range 10 {
			mustAllow(t, ask(t.Context(), c, "x"))
		}
		if took := time.Since(began); took != 0 || len(s.sizes()) != 10 {
			t.Errorf("%d requests took %v", len(s.sizes()), took)
		}
	})
}

// TestCallsOfTheirOwn has a client that joins none.
func TestCallsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{DisableBatching: true})
		all := ask(t.Context(), c, names(20)...)
		if n := len(s.sizes()); n != 20 {
			t.Errorf("%d requests for 20 calls", n)
		}
		g.open()
		mustAllow(t, all)
	})
}

// TestLateTripsHoldUpNobody has requests that don't come back: those that wait go after
// 10 ms all the same.
func TestLateTripsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{})
		all := ask(t.Context(), c, "a", "b", "c")
		time.Sleep(9 * time.Millisecond)
		synctest.Wait()
		if got := fmt.Sprint(s.sizes()); got != "[1]" {
			t.Errorf("before: requests of %s calls", got)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := fmt.Sprint(s.sizes()); got != "[1 2]" {
			t.Errorf("after: requests of %s calls", got)
		}
		for range 100 { // far more than may be under way
			all = append(all, ask(t.Context(), c, names(2)...)...)
			time.Sleep(11 * time.Millisecond)
		}
		if n := len(s.sizes()); n != 64 {
			t.Errorf("%d requests are under way", n)
		}
		g.open()
		mustAllow(t, all)
		all = ask(t.Context(), c, names(20)...)
		mustAllow(t, all)
	})
}

// TestAPlaceIsTaken has as many requests as there may be that don't come back. When the caller
// of one goes away, those that wait go in its place.
func TestAPlaceIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{Timeout: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		gone := ask(ctx, c, "gone")
		var all []<-chan result
		for range 70 {
			time.Sleep(11 * time.Millisecond)
			all = append(all, ask(t.Context(), c, "x")...)
		}
		time.Sleep(time.Second)
		if n := len(s.sizes()); n != 64 {
			t.Fatalf("%d requests", n)
		}
		cancel()
		r := <-gone[0]
		mustBe(t, r.err, context.Canceled, client.RecordedUnknown)
		time.Sleep(11 * time.Millisecond)
		synctest.Wait()
		if n := len(s.sizes()); n != 65 {
			t.Errorf("%d requests", n)
		}
		g.open()
		mustAllow(t, all)
	})
}

// TestAlikeCallsTravelApart has many calls of one identifier, which the service decides one
// after the other, and one of another, which does not wait for them all.
func TestAlikeCallsTravelApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{Timeout: time.Hour})
		identifiers := append([]string{"first"}, strings.Split(strings.Repeat("same ", 20), " ")[:20]...)
		all := ask(t.Context(), c, append(identifiers, "other")...)
		g.open()
		mustAllow(t, all)
		if got := fmt.Sprint(s.sizes()); got != "[1 9 12]" {
			t.Errorf("requests of %s calls", got)
		}
		if n := s.used("same"); n != 20 {
			t.Errorf("%d units were taken", n)
		}
	})
}

// TestTripsAreBounded has more calls, and longer ones, than a batch takes.
func TestTripsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{Timeout: time.Hour})
		all := ask(t.Context(), c, names(2002)...)
		g.open()
		mustAllow(t, all)
		if got := fmt.Sprint(s.sizes()); got != "[1 1000 1000 1]" {
			t.Errorf("requests of %s calls", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{Timeout: time.Hour})
		var all []<-chan result
		for i := range 200 { // of 16 demands with 800 bytes each: 84 to a batch
			demands := make([]client.Demand, 16)
			for d := range demands {
				demands[d] = one("api", fmt.Sprint(i, "-", d, strings.Repeat("x", 700)))
			}
			all = append(all, asking(func() (client.Decision, error) { return c.Take(t.Context(), demands...) }))
		}
		synctest.Wait()
		g.open()
		mustAllow(t, all)
		if n := len(s.sizes()); n < 3 || n > 5 { // the first has one or some
			t.Errorf("%d requests: %v", n, s.sizes())
		}
	})
}

// TestACallIsCancelledWhileItWaits: it is not counted, and harms no other.
func TestACallIsCancelledWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{})
		first := ask(t.Context(), c, "first")
		ctx, cancel := context.WithCancel(t.Context())
		leaving := ask(ctx, c, "a", "b", "c")
		staying := ask(t.Context(), c, "d")
		leaving = append(leaving, ask(ctx, c, "e")...)
		cancel()
		for _, l := range leaving {
			r := <-l
			mustBe(t, r.err, context.Canceled, client.RecordedNo)
		}
		g.open()
		mustAllow(t, append(first, staying...))
		if got := fmt.Sprint(s.sizes()); got != "[1 1]" || s.used("a")+s.used("b")+s.used("c")+s.used("e") != 0 {
			t.Errorf("requests of %s calls", got)
		}
	})
}

// TestACallIsCancelledOnItsTrip: others of the trip are answered, and the trip ends with the
// last of them.
func TestACallIsCancelledOnItsTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{})
		first := ask(t.Context(), c, "first")
		ctx, cancel := context.WithCancel(t.Context())
		leaving := ask(ctx, c, "a", "b")
		staying := ask(t.Context(), c, "d")
		time.Sleep(11 * time.Millisecond) // they are under way, as the first is late
		synctest.Wait()
		cancel()
		for _, l := range leaving {
			r := <-l
			mustBe(t, r.err, context.Canceled, client.RecordedUnknown)
		}
		g.open()
		mustAllow(t, append(first, staying...))
		if got := fmt.Sprint(s.sizes()); got != "[1 3]" {
			t.Errorf("requests of %s calls", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, g, c := held(t, client.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := <-ask(ctx, c, "x")[0]
		mustBe(t, r.err, context.DeadlineExceeded, client.RecordedUnknown)
		mustBe(t, r.err, client.ErrUnavailable, client.RecordedUnknown)
		synctest.Wait() // the request has ended, as its context did
		if s.used("x") != 0 {
			t.Error("it was counted")
		}
		g.open()
		mustAllow(t, ask(t.Context(), c, "x"))
	})
}

// TestTheTimeOfACall has a service that does not answer: a call ends after Timeout, whether
// it waits or travels, and a check leaves nothing behind.
func TestTheTimeOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, c := held(t, client.Options{Timeout: 300 * time.Millisecond, Concurrency: 1})
		began := time.Now()
		check := asking(func() (client.Decision, error) { return c.Check(t.Context(), one("api", "x")) })
		all := ask(t.Context(), c, names(5)...)
		for _, a := range all {
			r := <-a
			mustBe(t, r.err, client.ErrUnavailable, client.RecordedUnknown)
		}
		r := <-check
		mustBe(t, r.err, client.ErrUnavailable, client.RecordedNo)
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("they took %v", took)
		}
	})
}

// TestAServiceThatStandsStill opens the breaker as one that is gone does, but callers that change their minds don't.
func TestAServiceThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, c := held(t, client.Options{Timeout: 300 * time.Millisecond})
		for range 10 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			_, err := c.Take(ctx, one("api", "x"))
			mustBe(t, err, context.Canceled, client.RecordedUnknown)
		}
		began := time.Now()
		for i := range 10 {
			recorded := client.RecordedUnknown
			if i >= client.DefaultMaxFailures {
				recorded = client.RecordedNo
			}
			_, err := c.Take(t.Context(), one("api", "x"))
			mustBe(t, err, client.ErrUnavailable, recorded)
			synctest.Wait() // the request has ended too
		}
		if took := time.Since(began); took != client.DefaultMaxFailures*300*time.Millisecond {
			t.Errorf("they took %v", took)
		}
	})
}

func TestAContextThatHasEnded(t *testing.T) {
	s := newService(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.overHTTP(&client.Options{OnUnavailable: client.FailOpen}).Take(ctx, one("api", "x"))
	mustBe(t, err, context.Canceled, client.RecordedNo)
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// TestCloseWaits has calls under way and in the queue when the client is closed.
func TestCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, c := held(t, client.Options{})
		all := ask(t.Context(), c, names(3)...)
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		_, err := c.Take(t.Context(), one("api", "x"))
		mustBe(t, err, client.ErrClosed, client.RecordedNo)
		mustBe(t, c.Reset(t.Context(), "api", "x"), client.ErrClosed, client.RecordedNo)
		select {
		case err := <-closed:
			t.Errorf("closed too early: %v", err)
		default:
		}
		g.open()
		mustAllow(t, all)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// TestEverybodyAtOnce has callers that go away at any moment: an allowed call is counted once, and a call is not
// counted if its caller is told that nothing was recorded.
func TestEverybodyAtOnce(t *testing.T) {
	const callers, each = 32, 60
	s := newService(t)
	c := s.overHTTP(nil)
	var mu sync.Mutex
	var yes, unknown int64
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(caller)))
			for range each {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.Int64N(int64(4*time.Millisecond))))
				if random.IntN(3) > 0 {
					ctx = t.Context()
				}
				d, err := c.Take(ctx, one("api", "x"))
				cancel()
				mu.Lock()
				switch {
				case err == nil && d.Allowed:
					yes++
				case client.RecordedOf(err) == client.RecordedUnknown:
					unknown++
				case client.RecordedOf(err) != client.RecordedNo:
					t.Errorf("%+v, %v", d, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if used := s.used("x"); used < yes || used > yes+unknown || yes == 0 {
		t.Errorf("%d units count, of %d that were allowed and %d that nobody knows of", used, yes, unknown)
	}
	if n := len(s.requests()); n >= callers*each {
		t.Errorf("%d requests for %d calls", n, callers*each)
	}
}

// TestChecksWithAKey are answered as those without one, alone and in company.
func TestChecksWithAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, g, c := held(t, client.Options{})
		check := client.Call{Op: client.OpCheck, Demands: []client.Demand{one("api", "x")}, IdempotencyKey: "key"}
		var all []<-chan result
		for range 3 {
			all = append(all, asking(func() (client.Decision, error) { return c.Do(t.Context(), check) }))
			synctest.Wait()
		}
		g.open()
		mustAllow(t, all)
	})
}
