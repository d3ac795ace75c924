package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// script is a transport whose answers a test writes, part by part.
type script struct {
	t    *testing.T
	came chan *scripted
}

// scripted is a request, and its answer.
type scripted struct {
	identifiers []string
	accept      string
	ctx         context.Context
	header      chan http.Header
	body        *io.PipeWriter
}

// RoundTrip answers as the test says.
func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent struct {
		Identifier string
		Operations []struct{ Identifier string }
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
		s.t.Error(err)
	}
	from, to := io.Pipe()
	asked := &scripted{accept: r.Header.Get("Accept"), ctx: r.Context(), header: make(chan http.Header, 1), body: to}
	for _, o := range sent.Operations {
		asked.identifiers = append(asked.identifiers, o.Identifier)
	}
	if len(sent.Operations) == 0 {
		asked.identifiers = []string{sent.Identifier}
	}
	context.AfterFunc(r.Context(), func() { _ = from.CloseWithError(r.Context().Err()) })
	s.came <- asked
	select {
	case header := <-asked.header:
		return &http.Response{StatusCode: http.StatusOK, Header: header, Body: from, ContentLength: -1}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// begin begins an answer in lines.
func (a *scripted) begin() { a.header <- http.Header{"Content-Type": {"application/x-ndjson"}} }

// say sends a part of the answer.
func (a *scripted) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(a.body, text); err != nil {
		t.Errorf("the client hears no more: %v", err)
	}
	synctest.Wait()
}

func (a *scripted) end() { _ = a.body.Close() }

// line allows an operation.
func line(index int) string {
	return fmt.Sprintf(`{"index":%d,"status":200,"allowed":true,"policy":"api","limit":9,"remaining":%d,"used":1}`+"\n", index, index)
}

// lone answers a request of one call.
func (a *scripted) lone(t *testing.T) {
	a.header <- http.Header{"Content-Type": {"application/json"}}
	a.say(t, strings.Replace(strings.Replace(line(0), `"index":0,`, "", 1), `"status":200,`, "", 1))
	a.end()
	synctest.Wait()
}

// newScript returns a client with one trip at a time, which waits with a batch of so many calls.
func newScript(t *testing.T, n int) (s *script, c *client.Client, batch *scripted, all []<-chan result) {
	t.Helper()
	s = &script{t: t, came: make(chan *scripted, 100)}
	c = newClient(t, "http://ratelimitd", &client.Options{Transport: s, Concurrency: 1, Timeout: time.Hour})
	first := ask(t.Context(), c, "first")
	lone := <-s.came
	if strings.Contains(lone.accept, "ndjson") {
		t.Errorf("a lone call accepts %q", lone.accept)
	}
	all = ask(t.Context(), c, names(n)...)
	lone.lone(t)
	mustAllow(t, first)
	batch = <-s.came
	if len(batch.identifiers) != n || !strings.HasPrefix(batch.accept, "application/x-ndjson, application/json") {
		t.Fatalf("%q, accepting %q", batch.identifiers, batch.accept)
	}
	return s, c, batch, all
}

// mustWait fails the test if a call has its answer.
func mustWait(t *testing.T, all ...<-chan result) {
	t.Helper()
	for i, a := range all {
		select {
		case r := <-a:
			t.Errorf("%d has its answer: %+v", i, r)
		default:
		}
	}
}

// TestLinesAreAnswers has callers get theirs as they come, in whatever parts and order, and ask
// again while others wait.
func TestLinesAreAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, batch, all := newScript(t, 4)
		batch.begin()
		text := line(2)
		batch.say(t, text[:20])
		mustWait(t, all...)
		batch.say(t, text[20:]+line(0)[:5])
		if r := <-all[2]; r.err != nil || r.Remaining != 2 {
			t.Errorf("%+v", r)
		}
		mustWait(t, all[0], all[1], all[3])
		began := time.Now()
		again := ask(t.Context(), c, "again")
		(<-s.came).lone(t)
		mustAllow(t, again)
		if waited := time.Since(began); waited > 0 {
			t.Errorf("a call waited %v for the rest of a trip that had brought answers", waited)
		}
		batch.say(t, line(0)[5:]+`{"index":3,"status":429,"allowed":false,"policy":"api"}`+"\n")
		if r := <-all[0]; r.err != nil || r.Remaining != 0 {
			t.Errorf("%+v", r)
		}
		if r := <-all[3]; r.err != nil || r.Allowed {
			t.Errorf("%+v", r)
		}
		mustWait(t, all[1])
		batch.say(t, `{"index":1,"status":503,"type":"x","title":"x","detail":"no","recorded":"unknown","field":"operations[1].policy"}`+"\n")
		r := <-all[1]
		mustBe(t, r.err, client.ErrUnavailable, client.RecordedUnknown)
		if p := (*client.Problem)(nil); !errors.As(r.err, &p) || p.Field != "policy" { // as if it had gone alone
			t.Errorf("%+v", p)
		}
		batch.end()
	})
}

// TestLinesThatEnd has an answer that breaks off or goes wrong: who had a line has an answer, and
// the others an error.
func TestLinesThatEnd(t *testing.T) {
	for name, rest := range map[string]string{
		"cut off":           "",
		"within a line":     line(1)[:30],
		"no newline":        strings.TrimSuffix(line(1), "\n"),
		"twice the same":    line(0),
		"an unknown one":    line(3),
		"a negative one":    line(-1),
		"no index":          strings.Replace(line(1), `"index":1,`, "", 1),
		"no JSON":           "upstream connect error\n",
		"an empty line":     "\n",
		"a contradiction":   strings.Replace(line(1), "200", "429", 1),
		"a line too long":   `{"index":1,"more":"` + strings.Repeat("x", 5<<20),
		"two in one":        strings.TrimSuffix(line(1), "\n") + line(2),
		"a page of a proxy": "<html>\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c, batch, all := newScript(t, 3)
				batch.begin()
				batch.say(t, line(0))
				mustAllow(t, all[:1])
				began := time.Now()
				go func() {
					if _, err := io.WriteString(batch.body, rest); err == nil && len(rest) < 1<<20 { // else the client has to have heard enough
						batch.end()
					}
				}()
				for _, a := range all[1:] {
					r := <-a
					mustBe(t, r.err, client.ErrUnavailable, client.RecordedUnknown)
				}
				if waited := time.Since(began); waited > 0 {
					t.Errorf("they waited %v", waited)
				}
				again := ask(t.Context(), c, "again")
				(<-s.came).lone(t)
				mustAllow(t, again)
			})
		})
	}
}

// TestAnswersWithoutLines are taken as well: a service before this one gives no others.
func TestAnswersWithoutLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, batch, all := newScript(t, 2)
		batch.header <- http.Header{"Content-Type": {"application/json"}}
		batch.say(t, `{"results":[`+strings.TrimSpace(line(0))+",")
		mustWait(t, all...)
		batch.say(t, line(1)+"]}")
		batch.end()
		mustAllow(t, all)
	})
}

// TestCallersLeaveATripOfLines: the request ends with the last that waits, and not before.
func TestCallersLeaveATripOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, came: make(chan *scripted, 100)}
		c := newClient(t, "http://ratelimitd", &client.Options{Transport: s, Concurrency: 1, Timeout: time.Hour})
		first := ask(t.Context(), c, "first")
		lone := <-s.came
		ctx, cancel := context.WithCancel(t.Context())
		all := append(ask(t.Context(), c, "a", "b"), ask(ctx, c, "c", "d")...)
		lone.lone(t)
		mustAllow(t, first)
		batch := <-s.came
		batch.begin()
		batch.say(t, line(0))
		mustAllow(t, all[:1])
		cancel()
		for _, gone := range all[2:] {
			r := <-gone
			mustBe(t, r.err, context.Canceled, client.RecordedUnknown)
		}
		synctest.Wait()
		if batch.ctx.Err() != nil {
			t.Fatal("the request has ended, though somebody waits")
		}
		batch.say(t, line(3)+line(1)) // the line of a caller that left harms nobody
		mustAllow(t, all[1:2])
		if batch.ctx.Err() == nil {
			t.Error("the last has left, and the request goes on")
		}
	})
}

// TestWhoLeavesCountsOnce: a line for a caller that has left says nothing about those that still wait.
func TestWhoLeavesCountsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		leave []int // in turn, between the lines
		lines []int
		ends  bool // as nobody waits
	}{
		"leaves, a line, leaves": {[]int{0, 1}, []int{0}, false},
		"leaves, others' lines":  {[]int{0}, []int{1, 2}, true},
		"leaves, all but one":    {[]int{0}, []int{0, 1}, false},
		"all leave":              {[]int{0, 1, 2}, []int{0, 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{t: t, came: make(chan *scripted, 100)}
				cl := newClient(t, "http://ratelimitd", &client.Options{Transport: s, Concurrency: 1, Timeout: time.Hour})
				first := ask(t.Context(), cl, "first")
				lone := <-s.came
				var all []<-chan result
				var leave []context.CancelFunc
				for i := range 3 {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					all, leave = append(all, ask(ctx, cl, fmt.Sprint(i))...), append(leave, cancel)
				}
				lone.lone(t)
				mustAllow(t, first)
				batch := <-s.came
				batch.begin()
				for i := range max(len(c.leave), len(c.lines)) {
					if i < len(c.leave) {
						leave[c.leave[i]]()
						<-all[c.leave[i]]
					}
					if i < len(c.lines) {
						batch.say(t, line(c.lines[i]))
					}
				}
				synctest.Wait()
				if ended := batch.ctx.Err() != nil; ended != c.ends {
					t.Fatalf("the request has ended: %v", ended)
				}
				if !c.ends {
					batch.say(t, line(2))
					mustAllow(t, all[2:])
				}
				batch.end()
			})
		})
	}
}

// TestTripsGoBackToTheirNumber has requests that are late make more of them go, and then only such
// as bring answers: there are no more than Trips beside those, and no other goes for being late.
func TestTripsGoBackToTheirNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, batch, all := newScript(t, 2)
		busy := func() { // there is always something to ask
			all = append(all, ask(t.Context(), c, names(2)...)...)
		}
		under := []*scripted{batch}
		for range 9 { // which are late
			busy()
			time.Sleep(11 * time.Millisecond)
			under = append(under, <-s.came)
		}
		for i := range 30 { // each brings its first line, 3 ms after the one before
			busy()
			time.Sleep(3 * time.Millisecond)
			under[i].begin()
			under[i].say(t, line(0))
			for len(s.came) > 0 {
				under = append(under, <-s.came)
			}
		}
		if n := len(under) - 30; n > 1 {
			t.Errorf("%d requests are under way that have brought nothing", n)
		}
	})
}

// TestLinesAreAnswersOfTheService: the circuit stays closed while lines come, whatever becomes of
// their requests.
func TestLinesAreAnswersOfTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, came: make(chan *scripted, 100)}
		c := newClient(t, "http://ratelimitd", &client.Options{Transport: s, Concurrency: 1, Timeout: time.Hour, MaxFailures: 3})
		for range 9 {
			first := ask(t.Context(), c, "first")
			lone := <-s.came
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			all := ask(ctx, c, "quick", "slow")
			lone.header <- http.Header{"Content-Type": {"text/plain"}} // one failure more
			<-first[0]
			batch := <-s.came
			batch.begin()
			batch.say(t, line(0))
			mustAllow(t, all[:1])
			if r := <-all[1]; !errors.Is(r.err, context.DeadlineExceeded) {
				t.Fatal(r.err)
			}
		}
	})
}

// TestAlikeCallsInLines has the answers to many calls of one key come at once, and another of the
// same trip much later: they go on to travel together.
func TestAlikeCallsInLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, came: make(chan *scripted, 100)}
		c := newClient(t, "http://ratelimitd", &client.Options{Transport: s, Concurrency: 1, Timeout: time.Hour})
		for range 4 {
			all := ask(t.Context(), c, "first")
			lone := <-s.came
			all = append(all, ask(t.Context(), c, "same", "same", "same", "same", "other")...)
			lone.lone(t)
			batch := <-s.came
			if len(batch.identifiers) != 5 {
				t.Fatalf("%q travel together", batch.identifiers)
			}
			batch.begin()
			batch.say(t, line(0)+line(1)+line(2)+line(3))
			mustAllow(t, all[:5])
			time.Sleep(200 * time.Millisecond)
			batch.say(t, line(4))
			batch.end()
			mustAllow(t, all[5:])
		}
	})
}

// TestCloseWaitsForLines waits for the rest of a trip that has brought answers.
func TestCloseWaitsForLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, batch, all := newScript(t, 2)
		batch.begin()
		batch.say(t, line(1))
		mustAllow(t, all[1:])
		closed := make(chan struct{})
		go func() { defer close(closed); _ = c.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while a call waits")
		default:
		}
		batch.say(t, line(0))
		mustAllow(t, all[:1])
		batch.end()
		<-closed
	})
}

// TestTripsOfLinesAreBounded has none of them end: as many as there may be are under way.
func TestTripsOfLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, batch, all := newScript(t, 2)
		var under []*scripted
		var wait []<-chan result
		for range 200 {
			under = append(under, batch)
			batch.begin()
			more := ask(t.Context(), c, names(2)...)
			batch.say(t, line(0))
			mustAllow(t, all[:1])
			wait = append(wait, all[1])
			all = more
			time.Sleep(11 * time.Millisecond) // however late they are
			synctest.Wait()
			select {
			case batch = <-s.came:
				continue
			default:
			}
			break
		}
		if n := len(under); n != 2*64 { // half of them have brought answers
			t.Errorf("%d requests are under way", n)
		}
		for _, a := range under {
			a.say(t, line(1))
			a.end()
		}
		mustAllow(t, wait)
		(<-s.came).header <- http.Header{"Content-Type": {"text/plain"}}
		for _, a := range all {
			if r := <-a; r.err == nil {
				t.Error("text is an answer")
			}
		}
	})
}
