package cassandra_test

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// TestOnlyNodeIsSlow has the only node answer so late that reads are sent a second
// time. There is no other node to send them to: the first answer must still count.
func TestOnlyNodeIsSlow(t *testing.T) {
	config := commonConfig(t)
	if err := cassandra.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	slow := newSlowProxy(t, config.Hosts[0])
	config.Hosts = []string{slow.address()}
	config.Timeout = 2 * time.Second
	store, err := cassandra.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	policy := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}}
	e := storetest.NewEngine(t, store, limiter.Options{StoreTimeout: config.Timeout}, policy)
	for range 8 { // every connection prepares the statements
		if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "somebody else"}); err != nil {
			t.Fatal(err)
		}
	}
	slow.delay.Store(int64(600 * time.Millisecond)) // of a write and a read each; a read is sent again after 400
	if d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: storetest.Somebody}); err != nil || !d.Allowed {
		t.Errorf("allowed %v, %v", d.Allowed, err)
	}
	slow.delay.Store(int64(time.Minute))
	_, err = e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: storetest.Somebody})
	var failed *count.StoreError
	if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
		t.Errorf("%v, want recorded: unknown, for the write was sent", err)
	}
}

// TestConditionalWriteWhoseAnswerIsLost is stored, and must not be sent a second time:
// it would meet its own version, and be refused for it.
func TestConditionalWriteWhoseAnswerIsLost(t *testing.T) {
	config := commonConfig(t)
	direct := newStore(t, config)
	lossy := newSlowProxy(t, config.Hosts[0])
	config.Hosts, config.Connections = []string{lossy.address()}, 4
	s, err := cassandra.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids := store.NewEventIDs().Next
	// An answer that is cut may be one to a request of the driver's own, after which it may look for its node for a while.
	for i, end := 0, time.Now().Add(time.Minute); time.Now().Before(end); i++ {
		keyer := keys.Keyer{Namespace: rand.Text()}
		w := store.Write{Key: keyer.For(keys.KeySpace{}).Of(storetest.Somebody), Level: policy.LevelQuorum, Cell: &store.CellWrite{
			Version: ids(store.InstantOf(time.Now())), Value: []byte("a"), TTL: time.Hour, Serial: policy.LevelSerial,
		}}
		lossy.cut.Store(i > 0) // the first has the statement prepared
		err := s.Write(t.Context(), &w)
		state, readErr := direct.Read(t.Context(), &store.Query{Key: w.Key, Level: policy.LevelSerial, Cell: true})
		if readErr != nil {
			t.Fatal(readErr)
		}
		if state.Cell.Version != w.Cell.Version || i == 0 || err == nil {
			continue
		}
		if !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotStored) {
			t.Errorf("%v, want no more than that the store is unavailable: the write is stored", err)
		}
		return
	}
	t.Error("no answer was lost")
}

// slowProxy forwards a server's answers after a delay.
type slowProxy struct {
	listener net.Listener
	delay    atomic.Int64 // of each answer, as a time.Duration
	cut      atomic.Bool  // the next answer ends its connection instead of being passed on
	ended    chan struct{}
}

func newSlowProxy(t *testing.T, server string) *slowProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &slowProxy{listener: listener, ended: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(client, server) })
		}
	})
	t.Cleanup(func() {
		close(p.ended)
		_ = listener.Close()
		all.Wait()
	})
	return p
}

func (p *slowProxy) address() string { return p.listener.Addr().String() }

func (p *slowProxy) serve(client net.Conn, server string) {
	defer client.Close()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer upstream.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(upstream, client); _ = upstream.Close() })
	both.Go(func() { p.answer(client, upstream); _ = client.Close() })
	gone := make(chan struct{})
	go func() { both.Wait(); close(gone) }()
	select {
	case <-gone:
	case <-p.ended:
		_, _ = client.Close(), upstream.Close()
		<-gone
	}
}

// answer passes on what upstream says.
func (p *slowProxy) answer(client io.Writer, upstream io.Reader) {
	buf := make([]byte, 1<<16)
	for {
		n, err := upstream.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-time.After(time.Duration(p.delay.Load())):
		case <-p.ended:
			return
		}
		if p.cut.CompareAndSwap(true, false) {
			return
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
