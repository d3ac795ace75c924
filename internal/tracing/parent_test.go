package tracing

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// FuzzParent holds that a header is read as by OpenTelemetry's package.
func FuzzParent(f *testing.F) {
	const ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
	for _, sent := range []string{
		"", "00-" + ids + "-00", "00-" + ids + "-01", "00-" + ids + "-02", "00-" + ids + "-03", "00-" + ids + "-04", "00-" + ids + "-0A",
		"00-" + ids + "-01-", "00-" + ids + "-01-x", "00-" + ids + "-01x", "00-" + ids + "-1", "00-" + ids, "0-" + ids + "-01",
		"01-" + ids + "-ff", "01-" + ids + "-ff-more", "01-" + ids + "-01more", "fe-" + ids + "-00", "ff-" + ids + "-01", "FE-" + ids + "-01",
		"00_" + ids + "-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
		"00-4Bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902g7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01", "00-" + ids + "_01", "+0-" + ids + "-01",
	} {
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		p := Parent{Traceparent: sent}
		want := trace.SpanContextFromContext(p.extract(context.Background()))
		id, sampled, ok := p.read()
		if ok != want.IsValid() || id != want.TraceID() || sampled != want.IsSampled() {
			t.Errorf("%q: trace %s, sampled %t, is one %t; want %s, %t, %t",
				sent, id, sampled, ok, want.TraceID(), want.IsSampled(), want.IsValid())
		}
	})
}
