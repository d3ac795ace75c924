// Package otlp sends spans to a collector by OpenTelemetry's protocol, as the standard OTEL_*
// variables of the process's environment say. Nothing is sent unless they do.
//
// It does not know what is traced.
package otlp

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/ratelimitd/ratelimitd/internal/gate"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// Exporter sends spans. A nil one sends none. Make one with Open.
type Exporter struct {
	tracer   *tracing.Tracer
	provider *trace.TracerProvider
	log      *slog.Logger
}

// flushWithin is how long the last spans may take to be sent: a process that ends has ten seconds for
// all that it does.
const flushWithin = time.Second

// Open returns what sends spans of a process of this version; nil: the environment does not ask for that. It does not wait
// for a collector. Spans that can't be sent are lost, with a line in log. A variable with a mistake is ignored, with a
// warning. The error says what keeps it from being done.
func Open(ctx context.Context, version string, log *slog.Logger) (*Exporter, error) {
	if !wanted(log) {
		return nil, nil
	}
	listen(log)
	client, err := newClient(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("sending traces, as OTEL_* variables say: %w", err)
	}
	from, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(
			attribute.String("service.name", "ratelimitd"), attribute.String("service.version", version),
			attribute.String("service.instance.id", rand.Text()),
		),
		resource.WithFromEnv(),
	)
	if err != nil { // and from has what could be found out
		log.Warn("traces do not say all of where they are from", "error", err)
	}
	sampler, name := sampling.FromEnvironment()
	tracer, provider := sampling.New(sampler, trace.WithBatcher(client), trace.WithResource(from))
	log.Info("sending traces", "protocol", protocol(), "sampler", name)
	return &Exporter{tracer, provider, log}, nil
}

// wanted reports whether the environment asks for traces. Unlike elsewhere, a process that is told nothing
// sends none.
func wanted(log *slog.Logger) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch to := os.Getenv("OTEL_TRACES_EXPORTER"); to {
	case "otlp":
		return true
	case "none":
		return false
	case "":
	default:
		log.Warn("no traces are sent", "error", fmt.Sprintf("OTEL_TRACES_EXPORTER: %q is not known: use otlp or none", to))
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// The protocols by which spans can be sent.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

func protocol() string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), protocolHTTP)
}

// newClient returns what speaks to the collector. Addresses, headers, certificates and the like it reads from
// the environment itself.
func newClient(ctx context.Context, log *slog.Logger) (*otlptrace.Exporter, error) {
	switch by := protocol(); by {
	case protocolGRPC:
		return otlptracegrpc.New(ctx)
	case protocolHTTP:
	default:
		log.Warn("traces are sent by "+protocolHTTP,
			"error", fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not known: use %s or %s", by, protocolGRPC, protocolHTTP))
	}
	return otlptracehttp.New(ctx)
}

// listen has what OpenTelemetry has to say end up in log: it has one place for that in a process.
func listen(log *slog.Logger) {
	var lines gate.Second
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if lines.Open(time.Now()) {
			log.Warn("traces are lost", "error", err)
		}
	}))
}

// Tracer returns what begins the spans that e sends; nil for a nil e.
func (e *Exporter) Tracer() *tracing.Tracer {
	if e == nil {
		return nil
	}
	return e.tracer
}

// Run waits until ctx ends, and then sends the last spans, for at most a second. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	<-ctx.Done()
	if e == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	if err := e.provider.Shutdown(ctx); err != nil {
		e.log.Warn("traces are lost", "error", err)
	}
	return nil
}
