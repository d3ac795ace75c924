package conn

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
)

// A node is asked last from a fifth of a timeout after its last answer on, if it was asked since; and as before once it
// answers, however late.
func TestSilentNodesAreAskedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := make(map[string]*gocql.HostInfo)
		for _, id := range []string{"a", "b", "c"} {
			nodes[id] = new(gocql.HostInfo)
			nodes[id].SetHostID(id)
		}
		s := newSilences(100 * time.Millisecond)
		asks := func(id string) { s.StreamContext(t.Context()).StreamStarted(gocql.ObservedStream{Host: nodes[id]}) }
		answers := func(id string) { s.StreamContext(t.Context()).StreamFinished(gocql.ObservedStream{Host: nodes[id]}) }
		holds := func(when, want string) {
			t.Helper()
			left := []string{"a", "b", "c"}
			var got []string
			next := s.last(func() gocql.SelectedHost {
				if len(left) == 0 {
					return nil
				}
				host := chosenHost{nodes[left[0]]}
				left = left[1:]
				return host
			})
			for host := next(); host != nil; host = next() {
				got = append(got, host.Info().HostID())
			}
			if got := strings.Join(got, " "); got != want {
				t.Errorf("%s: in turn %s, want %s", when, got, want)
			}
		}
		holds("nobody was asked", "a b c")
		asks("a")
		time.Sleep(90 * time.Millisecond)
		asks("a") // an answer is due to the first
		holds("a was asked just now", "a b c")
		time.Sleep(20 * time.Millisecond)
		holds("a is silent", "b c a")
		asks("b")
		asks("c")
		time.Sleep(110 * time.Millisecond)
		answers("c")
		holds("a and b are silent", "c a b")
		asks("c")
		time.Sleep(110 * time.Millisecond)
		holds("all are silent", "a b c")
		answers("a")
		holds("a answers late", "a b c")
		answers("b")
		asks("b")
		answers("c")
		time.Sleep(time.Hour)
		holds("b is silent, the others were not asked", "a c b")
		s.StreamContext(t.Context()).StreamAbandoned(gocql.ObservedStream{Host: nodes["b"]})
		holds("b's connection ends", "a c b")
	})
}

// A session's nodes are silent by the driver's reports on them.
func TestSessionsLeaveSilentNodesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{Hosts: []string{"127.0.0.1"}, Timeout: time.Second}.WithDefaults()
		cl, nodes := config.Settings("")
		nodes.HostSelectionPolicy = gocql.RoundRobinHostPolicy()
		frozen := new(gocql.HostInfo)
		frozen.SetHostID("frozen")
		other := new(gocql.HostInfo)
		other.SetHostID("other")
		frozen.SetConnectAddress(net.IPv4(127, 0, 0, 2))
		other.SetConnectAddress(net.IPv4(127, 0, 0, 3))
		nodes.AddHost(frozen)
		nodes.AddHost(other)
		cl.StreamObserver.StreamContext(t.Context()).StreamStarted(gocql.ObservedStream{Host: frozen})
		time.Sleep(time.Second/SpeculateAfter + time.Millisecond)
		for range 4 { // either is the first in turn
			next := nodes.Pick(nil)
			if first, second := next().Info().HostID(), next().Info().HostID(); first != "other" || second != "frozen" {
				t.Errorf("in turn %s, %s", first, second)
			}
		}
	})
}
