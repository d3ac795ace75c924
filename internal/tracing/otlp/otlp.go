// Package otlp sends spans and metrics to a collector by OpenTelemetry's protocol, if the standard OTEL_* variables of the
// environment ask for it.
//
// It does not know what is in spans and metrics.
package otlp

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/ratelimitd/ratelimitd/internal/throttle"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
	"github.com/ratelimitd/ratelimitd/internal/tracing/sampling"
)

// Exporter sends spans, metrics, or both. A nil one sends nothing. Make one with Open.
type Exporter struct {
	tracer *tracing.Tracer                   // nil: no spans are sent
	ends   []func(ctx context.Context) error // each sends the rest of one signal
	log    *slog.Logger
}

// flushWithin is the time for sending the last spans and metrics. A process has ten seconds to stop.
const flushWithin = time.Second

// Open returns an Exporter of the spans of this process, whose version it adds, and of the metrics of gatherer, each if the
// environment asks for it; nil: it asks for neither. Open does not wait for a collector. Spans and metrics that can't be
// sent are lost, with a line in log. A variable with a mistake is ignored, with a warning.
func Open(ctx context.Context, version string, gatherer prometheus.Gatherer, log *slog.Logger) (*Exporter, error) {
	spans, counts := traces.wanted(log), metrics.wanted(log)
	if !spans && !counts {
		return nil, nil
	}
	listen(log)
	from := describe(ctx, version, log)
	e := &Exporter{log: log}
	if spans {
		if err := e.openTraces(ctx, from); err != nil {
			return nil, fmt.Errorf("sending traces, as OTEL_* variables say: %w", err)
		}
	}
	if counts {
		if err := e.openMetrics(ctx, from, gatherer); err != nil {
			return nil, fmt.Errorf("sending metrics, as OTEL_* variables say: %w", err)
		}
	}
	return e, nil
}

// describe returns the resource that spans and metrics come from.
func describe(ctx context.Context, version string, log *slog.Logger) *resource.Resource {
	from, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(
			attribute.String("service.name", "ratelimitd"), attribute.String("service.version", version),
			attribute.String("service.instance.id", rand.Text()),
		),
		resource.WithFromEnv(),
	)
	if err != nil { // from has the attributes that were found
		log.Warn("traces and metrics lack attributes of their resource", "error", err)
	}
	return from
}

// signal is traces or metrics.
type signal struct {
	name    string   // in capitals, as in OTEL_EXPORTER_OTLP_<name>_ENDPOINT
	others  []string // values of OTEL_<name>_EXPORTER for which this package sends nothing
	follows bool     // OTEL_EXPORTER_OTLP_ENDPOINT alone asks for it
}

// String returns the name in lower case.
func (s *signal) String() string { return strings.ToLower(s.name) }

// The two signals. An endpoint for both asks for traces only, because an instance that had it before metrics could be sent
// is scraped for them.
var (
	traces  = signal{name: "TRACES", others: []string{"none"}, follows: true}
	metrics = signal{name: "METRICS", others: []string{"none", "prometheus"}}
)

// wanted reports whether the environment asks for s. Unlike OpenTelemetry's default, nothing is sent if no variable is
// set.
func (s *signal) wanted(log *slog.Logger) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	choice := "OTEL_" + s.name + "_EXPORTER"
	switch to := os.Getenv(choice); {
	case to == "otlp":
		return true
	case slices.Contains(s.others, to):
		return false
	case to != "":
		log.Warn("no "+s.String()+" are sent",
			"error", fmt.Sprintf("%s: %q is not known: use otlp or %s", choice, to, strings.Join(s.others, " or ")))
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_"+s.name+"_ENDPOINT") != "" || s.follows && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// The protocols by which signals can be sent.
const (
	protocolHTTP = "http/protobuf"
	protocolGRPC = "grpc"
)

// protocol returns the protocol for s.
func (s *signal) protocol(log *slog.Logger) string {
	switch by := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_"+s.name+"_PROTOCOL"), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), protocolHTTP); by {
	case protocolGRPC, protocolHTTP:
		return by
	default:
		log.Warn(s.String()+" are sent by "+protocolHTTP,
			"error", fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL: %q is not known: use %s or %s", by, protocolGRPC, protocolHTTP))
	}
	return protocolHTTP
}

// openTraces opens the exporter of spans, which reads addresses, headers and certificates from the environment itself.
func (e *Exporter) openTraces(ctx context.Context, from *resource.Resource) (err error) {
	var client *otlptrace.Exporter
	by := traces.protocol(e.log)
	if by == protocolGRPC {
		client, err = otlptracegrpc.New(ctx)
	} else {
		client, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return err
	}
	sampler, name := sampling.FromEnvironment()
	tracer, provider := sampling.New(sampler, trace.WithBatcher(client), trace.WithResource(from))
	e.tracer, e.ends = tracer, append(e.ends, provider.Shutdown)
	e.log.Info("sending traces", "protocol", by, "sampler", name)
	return nil
}

// openMetrics opens the exporter of metrics, which sends them each minute, or at OTEL_METRIC_EXPORT_INTERVAL.
func (e *Exporter) openMetrics(ctx context.Context, from *resource.Resource, gatherer prometheus.Gatherer) (err error) {
	var client metric.Exporter
	by := metrics.protocol(e.log)
	if by == protocolGRPC {
		client, err = otlpmetricgrpc.New(ctx)
	} else {
		client, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return err
	}
	reader := metric.NewPeriodicReader(client, metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(gatherer))))
	provider := metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(from))
	e.ends = append(e.ends, provider.Shutdown)
	e.log.Info("sending metrics", "protocol", by)
	return nil
}

// listen sends OpenTelemetry's messages to log, for the whole process.
func listen(log *slog.Logger) {
	var lines throttle.Second
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		if lines.Allow(time.Now()) {
			log.Warn("traces or metrics are lost", "error", err)
		}
	}))
}

// Tracer returns the Tracer of spans that e sends; nil: it sends none.
func (e *Exporter) Tracer() *tracing.Tracer {
	if e == nil {
		return nil
	}
	return e.tracer
}

// Run waits until ctx ends, and then sends the last spans and metrics, for at most a second. It returns nil.
func (e *Exporter) Run(ctx context.Context) error {
	<-ctx.Done()
	if e == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	var all sync.WaitGroup
	for _, end := range e.ends {
		all.Go(func() {
			if err := end(ctx); err != nil {
				e.log.Warn("traces or metrics are lost", "error", err)
			}
		})
	}
	all.Wait()
	return nil
}
