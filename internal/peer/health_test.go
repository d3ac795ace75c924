package peer

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

// way leads to a server, until nothing passes it any more. Nothing that was sent is refused.
type way struct {
	listener net.Listener
	pass     sync.RWMutex // held for writing while nothing passes
}

func newWay(t *testing.T, to string) *way {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &way{listener: listener}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			end, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			all.Go(func() { w.copy(end, from) })
			all.Go(func() { w.copy(from, end) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return w
}

func (w *way) copy(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.pass.RLock()
		_, failed := to.Write(buffer[:n])
		w.pass.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}

// others is members of which one has to be reached.
type others struct{ one }

func (o *others) Others() ([]cluster.Member, <-chan struct{}) { return []cluster.Member{o.member}, nil }

// TestSilenceIsNotRefusal holds that a member which nobody has asked for anything is known to be
// reached, not to answer, or to refuse, and to be reached again.
func TestSilenceIsNotRefusal(t *testing.T) {
	address, stop := serve(t, "127.0.0.1:0", plain, deny)
	w := newWay(t, address)
	members := &others{one{member: cluster.Member{ID: "owner", Address: w.listener.Addr().String()}}}
	members.reach.Store(-1) // unknown
	run(t, NewPool(members, plain, slog.New(slog.DiscardHandler)))
	for _, step := range []struct {
		name string
		do   func()
		want cluster.Reach
	}{
		{"it is there", func() {}, cluster.Reached},
		{"nothing passes", w.pass.Lock, cluster.Unreached},
		{"it passes again", w.pass.Unlock, cluster.Reached},
		{"the process is gone", stop, cluster.Refused},
	} {
		began := time.Now()
		step.do()
		for !members.is(step.want) {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("%s: reach is %d after %v, want %d", step.name, members.reach.Load(), time.Since(began), step.want)
			}
			<-time.After(5 * time.Millisecond)
		}
		t.Logf("%s: known after %v", step.name, time.Since(began))
	}
}

// TestWhoStoodStillTakesNobodyForSilent holds that an answer has as much time to be heard when this process
// does not run for most of it.
func TestWhoStoodStillTakesNobodyForSilent(t *testing.T) {
	for _, c := range []struct {
		name  string
		stood time.Duration // at each look at the clock but the first
		least time.Duration // until nobody has answered
	}{
		{"it runs", 0, answerWithin},
		{"it waits for a processor", 400 * time.Millisecond, answerWithin / longestDeaf * (listenEvery + 400*time.Millisecond)},
		{"it is stopped for long", time.Minute, answerWithin / longestDeaf * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, stood := time.Now(), -c.stood
				now := func() time.Time {
					stood += c.stood
					return time.Now().Add(stood)
				}
				if !listen(t.Context(), now, answerWithin) {
					t.Fatal("it listened until the context ended")
				}
				if took := time.Since(began) + stood; took < c.least || took > c.least+2*c.stood+longestDeaf {
					t.Errorf("it took %v, want %v or little more", took, c.least)
				}
			})
		})
	}
}

func TestListenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if listen(ctx, time.Now, answerWithin) {
		t.Error("it listened on")
	}
}
