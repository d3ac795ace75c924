package cassandra_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// TestEachTraceHasItsTrips takes for many keys at once, of which every other call is traced, and holds that
// each trace has what was written and read for it, with how many calls shared that, and that nothing of
// what was written is in it.
func TestEachTraceHasItsTrips(t *testing.T) {
	config := commonConfig(t)
	config.Traced = true
	recorder := tracetest.NewSpanRecorder()
	tracer, _ := sampling.New(trace.ParentBased(trace.AlwaysSample()), trace.WithSpanProcessor(recorder))
	e := storetest.NewEngine(t, newStore(t, config), limiter.Options{
		Now: time.Now, StoreTimeout: 5 * time.Second, Together: tracing.Together,
	}, policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1000, Window: time.Hour}}})
	const calls = 80 // two of each key
	traces := make([]string, calls)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			ctx := context.Background()
			if i%2 == 0 {
				r, span := tracer.Request(httptest.NewRequest("POST", "/v1/take", nil))
				ctx, traces[i] = r.Context(), span.TraceID()
			}
			demand := limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint("caller ", i/4))}
			if _, err := e.Take(ctx, demand); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	trips, shared := make(map[string]string), 0
	for _, s := range recorder.Ended() {
		trips[s.SpanContext().TraceID().String()] += s.Name() + " "
		said := attribute.NewSet(s.Attributes()...)
		if n, _ := said.Value("ratelimitd.trip.calls"); n.AsInt64() > 1 {
			shared++
		} else if n.AsInt64() < 1 {
			t.Errorf("%s is for %d calls", s.Name(), n.AsInt64())
		}
		if text, _ := said.Value("db.query.text"); !strings.Contains(text.AsString(), "?") || strings.Contains(text.AsString(), "caller") {
			t.Errorf("%s says %s", s.Name(), text.AsString())
		}
	}
	for i, trace := range traces {
		wrote := strings.Contains(trips[trace], "INSERT") || strings.Contains(trips[trace], "BATCH")
		if traced := trace != ""; traced && (!wrote || !strings.Contains(trips[trace], "SELECT")) {
			t.Errorf("call %d has the trips %s", i, trips[trace])
		}
	}
	if len(trips) != calls/2 || shared == 0 {
		t.Errorf("%d traces have trips, of which %d are shared, want %d", len(trips), shared, calls/2)
	}
}

// TestWhatIsNotTracedIsNotObserved holds that a store that is told of no traces makes no spans.
func TestWhatIsNotTracedIsNotObserved(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer, _ := sampling.New(trace.ParentBased(trace.AlwaysSample()), trace.WithSpanProcessor(recorder))
	e := storetest.NewEngine(t, newStore(t, commonConfig(t)), limiter.Options{Now: time.Now, StoreTimeout: 5 * time.Second}, policy.Policy{
		Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1000, Window: time.Hour}},
	})
	r, _ := tracer.Request(httptest.NewRequest("POST", "/v1/take", nil))
	if _, err := e.Take(r.Context(), limiter.Demand{Policy: "p", Identifier: "caller"}); err != nil {
		t.Fatal(err)
	}
	if n := len(recorder.Ended()); n > 0 {
		t.Errorf("%d spans", n)
	}
}
