package peer

import (
	"context"
	"net"
	"net/http/httptest"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// TestEachCallTravelsWithItsOwnTrace hands many calls over at once, of which every other one is traced, and holds
// that each of these goes on where it came from, and that the others begin no trace.
func TestEachCallTravelsWithItsOwnTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer, _ := sampling.New(trace.ParentBased(trace.AlwaysSample()), trace.WithSpanProcessor(recorder))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	decide := func(ctx context.Context, c *demand.Charge) error {
		c.Steady = 1
		if tracing.SampledID(ctx) != "" {
			c.Steady = 2
		}
		return deny(ctx, c)
	}
	ctx, stop := context.WithCancel(context.Background())
	server := NewServer(listener, plain, deciderFunc(decide), new(views), tracer)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	pool, _ := connect(t, listener.Addr().String(), plain)
	err = await(t, pool, take(1)) // not traced
	if err != nil {
		t.Fatal(err)
	}
	const calls = 40
	traces := make(map[string]int)
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			ctx, want := t.Context(), 1
			if i%2 == 0 {
				r, span := tracer.Request(httptest.NewRequest("POST", "/v1/take", nil))
				ctx, want = r.Context(), 2
				mu.Lock()
				traces[span.TraceID()] = 0
				mu.Unlock()
			}
			c := take(byte(i))
			if err := handOn(ctx, pool, c); err != nil || int(c.Steady) != want {
				t.Errorf("call %d: traced as %d, want %d, error %v", i, c.Steady, want, err)
			}
		})
	}
	all.Wait()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, s := range recorder.Ended() {
		traces[s.SpanContext().TraceID().String()]++
	}
	if len(traces) != calls/2 {
		t.Errorf("%d traces, want %d", len(traces), calls/2)
	}
	for trace, spans := range traces {
		if spans != 2 { // the call as it is handed on, and what the owner makes of it
			t.Errorf("trace %s has %d spans", trace, spans)
		}
	}
}
