package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// loneLimit is each lone caller's.
const loneLimit = 10

// loneCaller takes from one key of one policy, one call at a time, of one instance after the other.
type loneCaller struct {
	policy, identifier string
	admitted, unknown  int
	denied             int
}

func (c *loneCaller) String() string {
	return fmt.Sprintf("%s %s: %d admitted, %d unknown, %d denied", c.policy, c.identifier, c.admitted, c.unknown, c.denied)
}

// take takes once. A call that was surely not decided is made again; one of which nobody knows is not.
func (c *loneCaller) take(t *testing.T, p *process) {
	t.Helper()
	body := fmt.Sprintf(`{"policy": %q, "identifier": %q}`, c.policy, c.identifier)
	for late := time.Now().Add(clitest.Patience); time.Now().Before(late); <-time.After(20 * time.Millisecond) {
		resp, err := http.Post(p.url+"/v1/take", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err) // the instance lives
		}
		var answer struct{ Recorded string }
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		switch {
		case err != nil:
			t.Fatal(err)
		case resp.StatusCode == http.StatusOK:
			c.admitted++
			return
		case resp.StatusCode == http.StatusTooManyRequests:
			c.denied++
			return
		case answer.Recorded == "unknown":
			c.unknown++
			return
		}
	}
	t.Fatalf("%v: nobody decides", c)
}

// loneCallers returns one caller for each algorithm.
func loneCallers(identifier string) (all []*loneCaller) {
	for _, name := range policy.Algorithms() {
		all = append(all, &loneCaller{policy: name, identifier: identifier})
	}
	return all
}

// trio is instances on one keyspace that hand calls on to each other.
type trio struct {
	flags []string
	all   []*process
	turn  int
}

func (s *trio) start(t *testing.T, n int) {
	t.Helper()
	for range n {
		s.all = append(s.all, startProcess(t, s.flags...))
	}
}

// end ends the instance that lives for longest.
func (s *trio) end(t *testing.T, signal os.Signal) {
	t.Helper()
	s.all[0].end(t, signal)
	s.all = s.all[1:]
}

// round has every caller take n times, of one instance after the other.
func (s *trio) round(t *testing.T, callers []*loneCaller, n int) {
	t.Helper()
	for _, c := range callers {
		for range n {
			s.turn++
			c.take(t, s.all[s.turn%len(s.all)])
		}
	}
}

// hold checks that callers that asked for more than their limit got it, and no more. Units whose fate is unknown may have
// counted.
func (s *trio) hold(t *testing.T, callers []*loneCaller) {
	t.Helper()
	for _, c := range callers {
		if c.admitted > loneLimit || c.admitted+c.unknown < loneLimit {
			t.Errorf("%v, want %d admitted", c, loneLimit)
		}
	}
}

// edgeWindow is that of policies whose windows end while they are tested. By edgeSlack a unit may count longer: twice the
// tolerance of clocks, and what it takes to tell another instance of a denial.
const (
	edgeWindow = 3 * time.Second
	edgeSlack  = 300 * time.Millisecond
)

// span is in which time a call was decided.
type span struct{ asked, answered time.Time }

// meets says whether a unit counts for a later call: surely, or perhaps.
var meets = map[string]struct{ surely, perhaps func(unit, call span) bool }{
	"sliding-log": {
		func(unit, call span) bool { return call.answered.Sub(unit.asked) < edgeWindow },
		func(unit, call span) bool { return call.asked.Sub(unit.answered) <= edgeWindow+edgeSlack },
	},
	"fixed-window": {
		func(unit, call span) bool { return windowOf(unit.asked) == windowOf(call.answered) },
		func(unit, call span) bool { return windowOf(unit.answered) >= windowOf(call.asked.Add(-edgeSlack)) },
	},
}

func windowOf(at time.Time) int64 { return at.UnixNano() / int64(edgeWindow) }

// countOf returns how many of units count for call.
func countOf(units []span, call span, meets func(unit, call span) bool) (n int) {
	for _, unit := range units {
		if meets(unit, call) {
			n++
		}
	}
	return n
}

// holdAcrossEdges has a caller take in each of several windows, of one instance after the other. No call is admitted
// beyond the limit, and none is denied below it.
func (s *trio) holdAcrossEdges(t *testing.T, algorithm string) {
	t.Helper()
	c := &loneCaller{policy: algorithm + "-edges", identifier: "edges"}
	var admitted, counted []span
	ends, late := time.Now().Add(2*edgeWindow+edgeWindow/2), time.Now().Add(clitest.Patience)
	met := func() bool { return c.admitted+c.unknown >= 2*loneLimit && c.denied > 0 }
	for ; time.Now().Before(ends) || !met() && time.Now().Before(late); <-time.After(40 * time.Millisecond) {
		before, call := *c, span{asked: time.Now()}
		s.turn++
		c.take(t, s.all[s.turn%len(s.all)])
		call.answered = time.Now()
		switch {
		case c.denied > before.denied:
			if n := countOf(counted, call, meets[algorithm].perhaps); n < loneLimit {
				t.Errorf("%v: a call is denied after %d units of %d", c, n, loneLimit)
			}
			continue
		case c.admitted > before.admitted:
			if n := countOf(admitted, call, meets[algorithm].surely); n >= loneLimit {
				t.Errorf("%v: a call is admitted after %d units of %d", c, n, loneLimit)
			}
			admitted = append(admitted, call)
		}
		counted = append(counted, call)
	}
	if !met() {
		t.Errorf("%v: no edge of a window was met", c)
	}
}

// TestLoneCallerGetsItsLimit has callers of every algorithm that go from instance to instance, while
// instances come, are stopped and are killed: each gets exactly its limit.
func TestLoneCallerGetsItsLimit(t *testing.T) {
	text := "policies:\n"
	for _, name := range policy.Algorithms() {
		text += clitest.PolicyOf(name, loneLimit)
	}
	for name := range meets {
		text += fmt.Sprintf("  - {name: %s-edges, limits: [{algorithm: %s, limit: %d, window: %v}]}\n", name, name, loneLimit, edgeWindow)
	}
	s := &trio{flags: onCassandra(t, "--policies="+clitest.Write(t, "p.yaml", text), "--peer-listen=127.0.0.1:0")}
	s.start(t, 1)
	s.all[0].awaitMembers(t, 1) // those that come later are asked while they join
	grows, stopped, killed, shrinks := loneCallers("grows"), loneCallers("stopped"), loneCallers("killed"), loneCallers("shrinks")
	s.round(t, grows, 4)
	s.start(t, 2)
	s.round(t, grows, loneLimit)
	s.hold(t, grows)
	for name := range meets {
		s.holdAcrossEdges(t, name)
	}

	for range 3 {
		s.round(t, stopped, 3)
		s.start(t, 1)
		s.end(t, syscall.SIGTERM)
	}
	s.round(t, stopped, loneLimit)
	s.hold(t, stopped)

	for range 3 {
		s.round(t, killed, 3)
		s.end(t, syscall.SIGKILL)
		s.round(t, killed, 1)
		s.start(t, 1)
	}
	s.round(t, killed, loneLimit)
	s.hold(t, killed)

	s.round(t, shrinks, 4)
	s.end(t, syscall.SIGTERM)
	s.end(t, syscall.SIGTERM)
	s.round(t, shrinks, loneLimit)
	s.hold(t, shrinks)

	afresh := loneCallers("afresh")
	s.round(t, afresh, 4)
	s.end(t, syscall.SIGTERM)
	s.start(t, 3)
	for _, all := range [][]*loneCaller{afresh, grows, stopped, killed, shrinks} {
		s.round(t, all, loneLimit)
		s.hold(t, all)
	}
	for len(s.all) > 0 {
		s.end(t, syscall.SIGTERM)
	}
}
