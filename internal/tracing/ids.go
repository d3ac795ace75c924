package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// root is the context of a trace that begins in this process. Its id is generated before the first span, for the Sampler.
type root struct {
	context.Context
	id trace.TraceID
}

type rootKey struct{}

func (r *root) Value(key any) any {
	if key == (rootKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// IDs generates random ids of traces and spans, like OpenTelemetry's SDK.
type IDs struct{}

// NewIDs returns the id that a Tracer has generated for the trace of ctx, and an id for its first span.
func (IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id := newID()
	if r, ok := ctx.Value(rootKey{}).(*root); ok {
		id = r.id
	}
	return id, IDs{}.NewSpanID(ctx, id)
}

// NewSpanID returns the id of one more span.
func (IDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

func newID() (id trace.TraceID) {
	for !id.IsValid() || !isOpaque(id) { // others are not logged
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}
