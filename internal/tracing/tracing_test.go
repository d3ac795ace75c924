package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// newTracer returns a Tracer, and the recorder of its spans.
func newTracer(sampler trace.Sampler) (*tracing.Tracer, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	tracer, _ := sampling.New(sampler, trace.WithSpanProcessor(recorder))
	return tracer, recorder
}

func request() *http.Request { return httptest.NewRequest(http.MethodPost, "/v1/take", nil) }

// values returns the values of key in spans of this name.
func values(recorder *tracetest.SpanRecorder, name string, key attribute.Key) (found []string) {
	for _, s := range recorder.Ended() {
		for _, a := range s.Attributes() {
			if s.Name() == name && a.Key == key {
				found = append(found, fmt.Sprint(a.Value.AsInterface()))
			}
		}
	}
	return found
}

// TestWhatIsNotTracedAllocatesNothing holds that calls allocate nothing without a Tracer, or if the caller or the sampler
// excludes them.
func TestWhatIsNotTracedAllocatesNothing(t *testing.T) {
	never, recorder := newTracer(trace.NeverSample())
	seldom, _ := newTracer(trace.TraceIDRatioBased(0))
	follows, _ := newTracer(trace.ParentBased(trace.AlwaysSample()))
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
	const excluded, sampled = parent + "00", parent + "01"
	call, nobody := &demand.Charge{Definition: &demand.Definition{Policy: "p"}, Op: count.OpTake}, context.Context(nil)
	trip := tracing.Trip{Statement: "SELECT", Statements: 1}
	for name, c := range map[string]struct {
		tracer *tracing.Tracer
		parent string
	}{
		"off": {nil, sampled}, "never": {never, ""}, "never, but the caller does": {never, sampled}, "by ratio": {seldom, ""},
		"not by its caller": {follows, excluded},
	} {
		sent := request()
		if c.parent != "" {
			sent.Header["Traceparent"], sent.Header["Tracestate"] = []string{c.parent}, []string{"a=1"}
		}
		got := testing.AllocsPerRun(100, func() {
			r, span := c.tracer.Request(sent)
			_, called := c.tracer.Call(sent.Context(), "ShouldRateLimit", tracing.Parent{Traceparent: c.parent, Tracestate: "a=1"})
			within, decided := c.tracer.Decide(r.Context(), count.OpTake)
			handed, parent := tracing.HandOn(within, "member", call)
			at, peer := c.tracer.DecideForPeer(context.Background(), parent, call)
			verifying, verified := tracing.Verify(at)
			trip.Add(verifying)
			verified.Verified(nil)
			peer.HandedOn(call, nil)
			handed.HandedOn(call, nil)
			decided.Decided(nil, 1, nil)
			called.Returned("ShouldRateLimit", "OK", nil)
			span.Answered("POST", "/v1/take", 200, nil)
			if r != sent || tracing.SampledID(within)+span.SampledID() != "" || tracing.Sampled(within) || tracing.Sampled(nobody) {
				t.Error("what is not traced has an id")
			}
		})
		if got > 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
		if _, span := c.tracer.Request(sent); (span.TraceID() != "") != (c.tracer != nil) {
			t.Errorf("%s: the log has the trace %q", name, span.TraceID())
		}
	}
	if n := len(recorder.Started()); n > 0 {
		t.Errorf("%d spans", n)
	}
}

// TestShareOfTracesIsSampled holds that a new trace has the id by which it was sampled, so that other services, which only
// know the id, decide alike.
func TestShareOfTracesIsSampled(t *testing.T) {
	const requests = 1000
	tracer, recorder := newTracer(trace.TraceIDRatioBased(0.25))
	for range requests {
		r, span := tracer.Request(request())
		_, decided := tracer.Decide(r.Context(), count.OpTake)
		decided.Decided(&count.Decision{}, 1, nil)
		span.Answered("POST", "/v1/take", 200, nil)
		followed, seen := tracer.Call(t.Context(), "again", tracing.Parent{Traceparent: "00-" + span.TraceID() + "-00f067aa0ba902b7-00"})
		if span.Sampled() != seen.Sampled() || span.Sampled() != tracing.Sampled(r.Context()) || seen.Sampled() != tracing.Sampled(followed) ||
			span.Sampled() != (span.SampledID() == span.TraceID()) {
			t.Errorf("trace %s is sampled %t, and by its id %t", span.TraceID(), span.Sampled(), seen.Sampled())
		}
	}
	traces := make(map[string]int)
	for _, s := range recorder.Ended() {
		traces[s.SpanContext().TraceID().String()]++
	}
	for id, spans := range traces {
		if spans != 2 {
			t.Errorf("trace %s has %d spans", id, spans)
		}
	}
	if n := len(traces); n < requests/5 || n > requests/3 { // three and a half, and six, deviations away
		t.Errorf("%d of %d traces are sampled", n, requests)
	}
}

// TestSpanOfThisProcessIsFollowed holds that a span of the same process is the parent of a request without a header, as in a
// program that contains the service.
func TestSpanOfThisProcessIsFollowed(t *testing.T) {
	opaque, err := api.TraceIDFromHex("4bf92f3577b34da6a3ce929d0e0e4736")
	if err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[bool]api.TraceFlags{true: api.FlagsSampled, false: 0} {
		tracer, _ := newTracer(trace.ParentBased(trace.AlwaysSample()))
		within := api.NewSpanContext(api.SpanContextConfig{TraceID: opaque, SpanID: api.SpanID{2}, TraceFlags: flags})
		_, span := tracer.Call(api.ContextWithSpanContext(t.Context(), within), "call", tracing.Parent{})
		if span.Sampled() != want || want && span.TraceID() != within.TraceID().String() {
			t.Errorf("flags %s: sampled %t, trace %s", flags, span.Sampled(), span.TraceID())
		}
	}
}

// TestCallerIsFollowed holds that a request continues the trace of its caller if it has one complete header, and begins a
// new one otherwise.
func TestCallerIsFollowed(t *testing.T) {
	const id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, c := range map[string]struct {
		parents, states []string
		follows         bool
		state           string
	}{
		"none":            {nil, nil, false, ""},
		"one":             {[]string{parent}, []string{"a=1"}, true, "a=1"},
		"several states":  {[]string{parent}, []string{"a=1", "b=2"}, true, "a=1,b=2"},
		"no state at all": {[]string{parent}, []string{"=,=,"}, true, ""},
		"two":             {[]string{parent, parent}, nil, false, ""},
		"nonsense":        {[]string{"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01"}, nil, false, ""},
	} {
		tracer, recorder := newTracer(trace.AlwaysSample())
		r := request()
		r.Header["Traceparent"], r.Header["Tracestate"] = c.parents, c.states
		_, span := tracer.Request(r)
		span.Answered("POST", "/v1/take", 200, nil)
		got := recorder.Ended()[0].SpanContext()
		if follows := got.TraceID().String() == id; follows != c.follows || got.TraceState().String() != c.state {
			t.Errorf("%s: trace %s, state %q", name, got.TraceID(), got.TraceState())
		}
		if span.TraceID() != got.TraceID().String() {
			t.Errorf("%s: it is told as %s", name, span.TraceID())
		}
	}
}

// TestTripIsPartOfEachTrace holds that a trip is in the trace of each call that it was made for, with their number: calls of
// a key that were decided together, and calls of other keys in the same request.
func TestTripIsPartOfEachTrace(t *testing.T) {
	tracer, recorder := newTracer(trace.AlwaysSample())
	var calls []context.Context
	var want []string
	for range 3 {
		r, span := tracer.Request(request())
		calls, want = append(calls, r.Context()), append(want, span.TraceID())
	}
	unseen, _ := newTracer(trace.NeverSample())
	call, _ := unseen.Request(request())
	ofOneKey := tracing.Together(context.Background(), []context.Context{calls[0], call.Context(), calls[1]})
	shared := tracing.Together(context.Background(), []context.Context{ofOneKey, calls[2], nil})
	began := time.Now().Add(-time.Second)
	trip := tracing.Trip{
		Statement: "INSERT INTO t (key) VALUES (?)", Statements: 5, Node: "10.0.0.1", Attempt: 1,
		Began: began, Ended: began.Add(time.Millisecond), Err: errors.New("too few replicas"),
	}
	trip.Add(shared)
	var got []string
	for _, s := range recorder.Ended() {
		got = append(got, s.SpanContext().TraceID().String())
		if !s.StartTime().Equal(began) || s.EndTime().Sub(began) != time.Millisecond || s.Status().Code != codes.Error {
			t.Errorf("from %v to %v, %v", s.StartTime(), s.EndTime(), s.Status())
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the trip is in the traces %s, want %s", got, want)
	}
	for key, want := range map[attribute.Key]string{
		"ratelimitd.trip.calls": "5", "db.operation.batch.size": "5", "server.address": "10.0.0.1", "ratelimitd.trip.attempt": "1",
	} {
		if got := values(recorder, "cassandra BATCH", key); len(got) != 3 || got[0] != want {
			t.Errorf("%s is %s, want %s", key, got, want)
		}
	}
	if id := tracing.SampledID(shared); id != want[0] || !tracing.Sampled(shared) || !tracing.Sampled(calls[2]) {
		t.Errorf("the trip is shown with trace %s, want %s", id, want[0])
	}
}

// TestCallHandedOnIsFollowed holds that the owner of a key continues the trace of a call, with its outcome.
func TestCallHandedOnIsFollowed(t *testing.T) {
	down := &count.StoreError{Recorded: count.RecordedNo, Err: store.ErrUnavailable}
	decided, admitted := count.Decision{}, count.Decision{WouldAllow: true, Remembered: true}
	for want, c := range map[string]struct {
		answer count.Decision
		err    error
		failed codes.Code
	}{
		"allowed": {admitted, nil, codes.Unset}, "denied": {decided, nil, codes.Unset},
		"refused": {decided, owner.ErrRefused, codes.Unset}, "failed": {decided, down, codes.Error},
	} {
		asker, ofAsker := newTracer(trace.AlwaysSample())
		other, ofOther := newTracer(trace.ParentBased(trace.NeverSample()))
		r, request := asker.Request(request())
		call := &demand.Charge{Definition: &demand.Definition{Policy: "p"}, Op: count.OpTake, View: 7}
		span, parent := tracing.HandOn(r.Context(), "member", call)
		_, peer := other.DecideForPeer(context.Background(), parent, call)
		call.Decision = c.answer
		peer.HandedOn(call, c.err)
		span.HandedOn(call, c.err)
		for name, recorder := range map[string]*tracetest.SpanRecorder{"hand on": ofAsker, "decide for peer": ofOther} {
			if got := values(recorder, name, "ratelimitd.outcome"); fmt.Sprint(got) != "["+want+"]" {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
			if got := values(recorder, name, "ratelimitd.view"); fmt.Sprint(got) != "[7]" {
				t.Errorf("%s: view %s", name, got)
			}
			if s := recorder.Ended()[0]; s.Status().Code != c.failed || s.SpanContext().TraceID().String() != request.TraceID() {
				t.Errorf("%s: %v, of trace %s", name, s.Status(), s.SpanContext().TraceID())
			}
		}
		if handed, at := ofAsker.Ended()[0], ofOther.Ended()[0]; at.Parent().SpanID() != handed.SpanContext().SpanID() {
			t.Error("the owner's span is not below that of the call")
		}
	}
}

// TestWhoeverIsAskedGoesOn holds that a request to another server has the current span as its parent if that is sampled, and
// otherwise the headers of the caller.
func TestWhoeverIsAskedGoesOn(t *testing.T) {
	for want, sampler := range map[bool]trace.Sampler{true: trace.AlwaysSample(), false: trace.NeverSample()} {
		tracer, _ := newTracer(sampler)
		r, span := tracer.Request(request())
		passed := http.Header{"Traceparent": {"as it was sent"}}
		tracing.Inject(r.Context(), passed)
		if got := passed.Get("Traceparent"); strings.HasPrefix(got, "00-"+span.TraceID()) != want || (got == "as it was sent") == want {
			t.Errorf("sampled %t: %s", want, got)
		}
	}
}

// TestNoMethodIsMadeUp holds that only standard methods of HTTP are in the names of spans.
func TestNoMethodIsMadeUp(t *testing.T) {
	tracer, recorder := newTracer(trace.AlwaysSample())
	for _, method := range []string{"GET", "+4915112345678"} {
		_, span := tracer.Request(request())
		span.Answered(method, "/v1/take", 200, nil)
	}
	if a, b := recorder.Ended()[0].Name(), recorder.Ended()[1].Name(); a != "GET /v1/take" || b != "_OTHER /v1/take" {
		t.Errorf("%q and %q", a, b)
	}
}
