package peer

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// TestGoroutinesDecideFurtherCalls holds that not each call grows the stack of a new goroutine.
func TestGoroutinesDecideFurtherCalls(t *testing.T) {
	const calls = 200
	var mu sync.Mutex
	deciders := make(map[string]bool)
	address, _ := serve(t, "127.0.0.1:0", plain, func(ctx context.Context, c *demand.Charge) error {
		stack := make([]byte, 64)
		name, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte(" ["))
		mu.Lock()
		defer mu.Unlock()
		deciders[string(name)] = true
		return deny(ctx, c)
	})
	pool, _ := connect(t, address, plain)
	for range calls {
		if err := await(t, pool, take(1)); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(deciders) == calls {
		t.Errorf("%d calls, one after the other, were decided by as many goroutines", calls)
	}
}

// TestFewGoroutinesWait holds that a burst of calls leaves a bounded number of goroutines, each of which decides further
// calls until the stream ends.
func TestFewGoroutinesWait(t *testing.T) {
	const more = 50
	again := idle{calls: make(chan *peerpb.Call)}
	ended, decided := make(chan bool), make(chan uint64)
	for range maxIdle + more {
		go func() {
			call, ok := again.next()
			for ; ok; call, ok = again.next() {
				decided <- call.GetNumber()
			}
			ended <- true
		}()
	}
	for range more {
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			t.Fatalf("more than %d goroutines wait", maxIdle)
		}
	}
	for i := range uint64(maxIdle) {
		again.calls <- &peerpb.Call{Number: i}
		if got := <-decided; got != i {
			t.Errorf("call %d was decided, want %d", got, i)
		}
	}
	close(again.calls)
	for range maxIdle {
		<-ended
	}
}
