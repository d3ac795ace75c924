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

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// clearly sets the variables that tests of this package go by, and no others of their kind.
func clearly(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME",
	} {
		t.Setenv(name, variables[name])
	}
}

// TestWhenTracesAreSent is which variables ask for traces, and what is said of those that are wrong.
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
		e, err := Open(t.Context(), "v1", slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil || (e != nil) != c.want || (e.Tracer() != nil) != c.want {
			t.Errorf("%v: %v, error %v", c.variables, e, err)
		}
		if !strings.Contains(log.String(), c.warning) || c.warning == "" && log.Len() > 0 {
			t.Errorf("%v: the log has %q", c.variables, &log)
		}
		end(t, e)
	}
}

// end runs e until it has sent what there is.
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

// TestSentByGRPC sends a span by gRPC, and holds that it says where it is from.
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
	e, err := Open(t.Context(), "v1", slog.New(slog.DiscardHandler))
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

// TestNoCollectorHoldsNobodyUp sends to where nobody listens, and holds that the end takes no longer than it
// may, and that the log has a line.
func TestNoCollectorHoldsNobodyUp(t *testing.T) {
	clearly(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
	var log bytes.Buffer
	e, err := Open(t.Context(), "v1", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, span := e.Tracer().Request(httptest.NewRequest(http.MethodPost, "/v1/take", nil))
	span.Answered("POST", "/v1/take", 200, nil)
	end(t, e)
	if !strings.Contains(log.String(), "traces are lost") {
		t.Errorf("the log has %q", &log)
	}
}
