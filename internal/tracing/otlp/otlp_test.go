package otlp

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	counts "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// clearly sets these OTEL_* variables, and no others.
func clearly(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME",
		"OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
	} {
		t.Setenv(name, variables[name])
	}
}

// TestWhenTracesAreSent holds which variables ask for traces, and the warnings about mistakes in them.
func TestWhenTracesAreSent(t *testing.T) {
	const exporter, endpoint, disabled = "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED"
	for _, c := range []struct {
		variables map[string]string
		want      bool
		warning   string
	}{
		{nil, false, ""},
		{map[string]string{endpoint: "http://127.0.0.1:1"}, true, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, true, ""},
		{map[string]string{exporter: "otlp"}, true, ""},
		{map[string]string{exporter: "none", endpoint: "http://127.0.0.1:1"}, false, ""},
		{map[string]string{exporter: "zipkin", endpoint: "http://127.0.0.1:1"}, false, `OTEL_TRACES_EXPORTER: \"zipkin\" is not known`},
		{map[string]string{exporter: "otlp", disabled: "TRUE"}, false, ""},
		{map[string]string{exporter: "otlp", disabled: "false"}, true, ""},
		{map[string]string{exporter: "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, true,
			`OTEL_EXPORTER_OTLP_PROTOCOL: \"http/json\" is not known`},
	} {
		clearly(t, c.variables)
		var log bytes.Buffer
		e, err := Open(t.Context(), "v1", prometheus.NewRegistry(),
			slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil || (e.Tracer() != nil) != c.want {
			t.Errorf("%v: %v, error %v", c.variables, e, err)
		}
		if !strings.Contains(log.String(), c.warning) || c.warning == "" && log.Len() > 0 {
			t.Errorf("%v: the log has %q", c.variables, &log)
		}
		end(t, e)
	}
}

// TestWhenMetricsAreSent holds which variables ask for metrics, and the warnings about mistakes in them. An endpoint for both
// signals does not ask for metrics.
func TestWhenMetricsAreSent(t *testing.T) {
	const exporter, endpoint = "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
	for _, c := range []struct {
		variables map[string]string
		want      bool
		warning   string
	}{
		{nil, false, ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, false, ""},
		{map[string]string{endpoint: "http://127.0.0.1:1/v1/metrics"}, true, ""},
		{map[string]string{exporter: "otlp"}, true, ""},
		{map[string]string{exporter: "prometheus", endpoint: "http://127.0.0.1:1/v1/metrics"}, false, ""},
		{map[string]string{exporter: "none", endpoint: "http://127.0.0.1:1/v1/metrics"}, false, ""},
		{map[string]string{exporter: "statsd"}, false, `OTEL_METRICS_EXPORTER: \"statsd\" is not known: use otlp or none or prometheus`},
		{map[string]string{exporter: "otlp", "OTEL_SDK_DISABLED": "true"}, false, ""},
		{map[string]string{exporter: "otlp", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "udp"}, true, `\"udp\" is not known`},
	} {
		clearly(t, c.variables)
		var log bytes.Buffer
		e, err := Open(t.Context(), "v1", prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || strings.Contains(log.String(), `"sending metrics"`) != c.want {
			t.Errorf("%v: error %v, the log has %q", c.variables, err, &log)
		}
		if warns := strings.Contains(log.String(), "WARN"); !strings.Contains(log.String(), c.warning) || warns != (c.warning != "") {
			t.Errorf("%v: the log has %q", c.variables, &log)
		}
		end(t, e)
	}
}

// end runs e until it has sent all.
func end(t *testing.T, e *Exporter) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := e.Run(ctx); err != nil {
		t.Error(err)
	}
}

// receiver is a collector by gRPC.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	got chan *collector.ExportTraceServiceRequest
}

func (r *receiver) Export(
	_ context.Context, sent *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	r.got <- sent
	return new(collector.ExportTraceServiceResponse), nil
}

// TestSentByGRPC holds that a span arrives by gRPC with its resource.
func TestSentByGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{got: make(chan *collector.ExportTraceServiceRequest, 1)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	clearly(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + listener.Addr().String(), "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_SERVICE_NAME": "limits",
	})
	e, err := Open(t.Context(), "v1", prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Tracer().Request(httptest.NewRequest(http.MethodPost, "/v1/take", nil))
	span.Answered("POST", "/v1/take", 200, nil)
	end(t, e)
	sent := <-r.got
	from := sent.GetResourceSpans()[0].GetResource().String()
	for _, want := range []string{"limits", "service.version", "v1", "service.instance.id", "host.name"} {
		if !strings.Contains(from, want) {
			t.Errorf("nothing of %s in %s", want, from)
		}
	}
	if name := sent.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName(); name != "POST /v1/take" {
		t.Errorf("the span is called %q", name)
	}
}

// countReceiver is a collector of metrics by gRPC.
type countReceiver struct {
	counts.UnimplementedMetricsServiceServer
	got chan *counts.ExportMetricsServiceRequest
}

func (r *countReceiver) Export(
	_ context.Context, sent *counts.ExportMetricsServiceRequest,
) (*counts.ExportMetricsServiceResponse, error) {
	r.got <- sent
	return new(counts.ExportMetricsServiceResponse), nil
}

// TestMetricsSentByGRPC holds that the metrics of a registry arrive by gRPC with their resource.
func TestMetricsSentByGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &countReceiver{got: make(chan *counts.ExportMetricsServiceRequest, 1)}
	server := grpc.NewServer()
	counts.RegisterMetricsServiceServer(server, r)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	clearly(t, map[string]string{
		"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + listener.Addr().String(), "OTEL_TRACES_EXPORTER": "none",
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc", "OTEL_SERVICE_NAME": "limits",
	})
	registry := prometheus.NewRegistry()
	e, err := Open(t.Context(), "v1", registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"policy"})
	registry.MustRegister(decisions) // after Open, as most metrics
	decisions.WithLabelValues("login").Add(3)
	end(t, e)
	sent := (<-r.got).GetResourceMetrics()[0]
	for _, want := range []string{"limits", "service.version", "v1", "service.instance.id", "host.name"} {
		if from := sent.GetResource().String(); !strings.Contains(from, want) {
			t.Errorf("nothing of %s in %s", want, from)
		}
	}
	one := sent.GetScopeMetrics()[0].GetMetrics()[0]
	point := one.GetSum().GetDataPoints()[0]
	if one.GetName() != "decisions_total" || point.GetAsDouble() != 3 || point.GetAttributes()[0].GetValue().GetStringValue() != "login" {
		t.Errorf("%v", one)
	}
}

// TestNoCollectorHoldsNobodyUp holds that, without a collector, Run ends in time and the log has a line.
func TestNoCollectorHoldsNobodyUp(t *testing.T) {
	clearly(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER": "otlp"})
	var log bytes.Buffer
	e, err := Open(t.Context(), "v1", prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Tracer().Request(httptest.NewRequest(http.MethodPost, "/v1/take", nil))
	span.Answered("POST", "/v1/take", 200, nil)
	end(t, e)
	if !strings.Contains(log.String(), "traces or metrics are lost") {
		t.Errorf("the log has %q", &log)
	}
}
