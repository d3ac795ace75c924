package client_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/trace"

	"github.com/ratelimitd/ratelimitd/client"
)

// traced returns ctx within a span of its own, which n names.
func traced(ctx context.Context, n byte, flags trace.TraceFlags) context.Context {
	state, _ := trace.ParseTraceState("vendor=state")
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: n}, SpanID: trace.SpanID{7: n}, TraceFlags: flags, TraceState: state,
	}))
}

// parent returns the header of the span that n names.
func parent(n, flags string) string {
	return "00-000000000000000000000000000000" + n + "-00000000000000" + n + "-" + flags
}

// tracesOf has every request of s note whose trace it is in.
func tracesOf(s *service) (noted func() []string) {
	var all []string
	before := s.instead
	s.instead = func(w http.ResponseWriter, r *http.Request) bool {
		s.mu.Lock()
		all = append(all, r.Header.Get("Traceparent"))
		if state := r.Header.Get("Tracestate"); (state == "vendor=state") != (r.Header.Get("Traceparent") != "") {
			s.t.Errorf("a request of %q has the state %q", all[len(all)-1], state)
		}
		s.mu.Unlock()
		return before != nil && before(w, r)
	}
	return func() []string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Clone(all)
	}
}

// TestRequestsAreInTheCallersTrace makes calls of every kind within a span, and without one.
func TestRequestsAreInTheCallersTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		noted := tracesOf(s)
		c := s.inMemory(nil)
		for _, ctx := range []context.Context{t.Context(), traced(t.Context(), 0xa, trace.FlagsSampled), traced(t.Context(), 0xb, 0)} {
			mustAllow(t, ask(ctx, c, "x"))
			if _, err := c.Batch(ctx, []client.Call{{Op: client.OpTake, Demands: []client.Demand{one("api", "x")}}}); err != nil {
				t.Fatal(err)
			}
			if err := c.Reset(ctx, "api", "x"); err != nil {
				t.Fatal(err)
			}
		}
		sampled, not := parent("0a", "01"), parent("0b", "00")
		if want := []string{"", "", "", sampled, sampled, sampled, not, not, not}; !slices.Equal(noted(), want) {
			t.Errorf("requests are in the traces %q", noted())
		}
	})
}

// TestARequestOfSeveralIsInTheTraceThatIsSeen has calls share a request: it is in the trace of the first that is
// sampled, or else of the first that has one.
func TestARequestOfSeveralIsInTheTraceThatIsSeen(t *testing.T) {
	const none, not, sampled = 0, 1, 2
	for _, test := range []struct {
		calls []int
		want  string
	}{
		{[]int{none, none}, ""},
		{[]int{none, not, not}, parent("02", "00")},
		{[]int{none, not, sampled, sampled}, parent("03", "01")},
		{[]int{sampled, not, sampled}, parent("01", "01")},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, g, c := held(t, client.Options{})
			noted := tracesOf(s)
			all := ask(t.Context(), c, "first")
			for i, kind := range test.calls {
				ctx := t.Context()
				if kind != none {
					ctx = traced(ctx, byte(i+1), trace.TraceFlags(kind-1))
				}
				all = append(all, ask(ctx, c, names(i + 1)[i])...)
			}
			g.open()
			mustAllow(t, all)
			mustAllow(t, ask(t.Context(), c, "first"))
			if want := []string{"", test.want, ""}; !slices.Equal(noted(), want) {
				t.Errorf("%v: requests are in the traces %q, want %q", test.calls, noted(), want)
			}
		})
	}
}
