package serve_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// receiver is a collector: it keeps the spans that are sent to it.
type receiver struct {
	url string

	mu    sync.Mutex
	spans []received
}

// received is a span, and the instance that sent it.
type received struct {
	*traces.Span
	instance string
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := new(receiver)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, sent *http.Request) {
		body, err := io.ReadAll(sent.Body)
		var export collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &export)
		}
		if err != nil || sent.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", sent.URL.Path, err)
		}
		r.keep(&export)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *receiver) keep(export *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, from := range export.GetResourceSpans() {
		for _, scope := range from.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				r.spans = append(r.spans, received{span, attributes(from.GetResource().GetAttributes())["service.instance.id"]})
			}
		}
	}
}

// of returns the spans of a trace.
func (r *receiver) of(trace string) (spans []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			spans = append(spans, s)
		}
	}
	return spans
}

// all returns all spans.
func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

func attributes(of []*common.KeyValue) map[string]string {
	all := make(map[string]string, len(of))
	for _, a := range of {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			all[a.GetKey()] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_BoolValue:
			all[a.GetKey()] = fmt.Sprint(v.BoolValue)
		default:
			all[a.GetKey()] = fmt.Sprintf("%T", v)
		}
	}
	return all
}

// below returns the span of that name whose parent has that id.
func below(t *testing.T, spans []received, parent []byte, name string) received {
	t.Helper()
	for _, s := range spans {
		if string(s.GetParentSpanId()) == string(parent) && strings.HasPrefix(s.GetName(), name) {
			return s
		}
	}
	t.Fatalf("no %s below %x:\n%s", name, parent, told(spans))
	return received{}
}

func told(spans []received) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%x below %x: %s of %s %v\n", s.GetSpanId(), s.GetParentSpanId(), s.GetName(), s.instance, attributes(s.GetAttributes()))
	}
	return b.String()
}

// takeTraced takes a unit for an identifier, as part of a trace.
func takeTraced(t *testing.T, url, policy, identifier, trace string) {
	t.Helper()
	body := fmt.Sprintf(`{"policy": %q, "identifier": %q}`, policy, identifier)
	r, err := http.NewRequest(http.MethodPost, url+"/v1/take", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", "00-"+trace+"-"+callersSpan+"-01")
	r.Header.Set("Tracestate", "vendor=state")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("a take is answered with %d", answer.StatusCode)
	}
}

const callersSpan = "00000000000000ab"

// startMembers starts so many instances that decide together, and waits until they do.
func startMembers(t *testing.T, n int, flags ...string) (all []*clitest.Server) {
	t.Helper()
	flags = onCassandra(t, append(flags, "--log-level=debug", "--peer-listen=127.0.0.1:0")...)
	for range n {
		all = append(all, clitest.Start(t, nil, flags...))
	}
	for _, s := range all {
		s.WaitForMetric(t, fmt.Sprintf("\nratelimitd_members %d\n", n))
		s.WaitForMetric(t, "\nratelimitd_members_view_installed 1\n")
		s.WaitForMetric(t, "\nratelimitd_members_shared 0\n")
	}
	return all
}

// TestATakeIsOneTrace sends takes to one of two instances, and finds each in the collector as one trace: the
// request, the decision, the call that is handed on where the other one owns the key, what that decides, and what
// is asked of Cassandra for it.
func TestATakeIsOneTrace(t *testing.T) {
	collector := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20") // milliseconds
	policies := clitest.Write(t, "p.yaml", "policies: [{name: log, limits: [{name: few, algorithm: sliding-log, limit: 1000, window: 1m}]}]")
	asked := startMembers(t, 2, "--policies="+policies, "--owners=all")[0]

	const takes = 16 // none of which is for the other instance once in 65,536 runs
	identifierOf := func(i int) string { return fmt.Sprintf("+4915112345%03d", i) }
	traceOf := func(i int) string { return fmt.Sprintf("%030xf%x", 1, i) }
	for i := range takes {
		takeTraced(t, asked.URL, "log", identifierOf(i), traceOf(i))
	}
	handedOn := 0
	for i := range takes {
		spans := awaitTrace(t, collector, traceOf(i))
		if checkTrace(t, spans) {
			handedOn++
		}
		asked.Log.WaitFor(t, "trace_id="+traceOf(i), 1)
	}
	if handedOn == 0 || handedOn == takes {
		t.Errorf("%d of %d takes were handed on", handedOn, takes)
	}
	for _, s := range collector.all() {
		checkSaysNobody(t, s)
	}
	checkExemplars(t, asked, "ratelimitd_http_request_duration_seconds", "ratelimitd_store_duration_seconds")
}

// awaitTrace waits until the collector has the request of a trace, which is sent last, and what the other
// instance did for it.
func awaitTrace(t *testing.T, from *receiver, trace string) []received {
	t.Helper()
	for late := time.Now().Add(clitest.Patience); ; <-time.After(10 * time.Millisecond) {
		spans := from.of(trace)
		has := func(name string) bool {
			return slices.ContainsFunc(spans, func(s received) bool { return strings.HasPrefix(s.GetName(), name) })
		}
		if has("POST /v1/take") && has("cassandra INSERT") && has("fence") && has("hand on") == has("decide for peer") {
			return spans
		}
		if time.Now().After(late) {
			t.Fatalf("trace %s is not whole:\n%s", trace, told(spans))
		}
	}
}

// checkTrace compares a trace with the wanted spans, and reports whether the take was handed on.
func checkTrace(t *testing.T, spans []received) (handedOn bool) {
	t.Helper()
	caller, _ := hex.DecodeString(callersSpan)
	request := below(t, spans, caller, "POST /v1/take")
	decided := below(t, spans, request.GetSpanId(), "decide")
	said := attributes(decided.GetAttributes())
	if said["ratelimitd.policy"] != "log" || said["ratelimitd.outcome"] != "allowed" || said["ratelimitd.algorithm"] != "sliding-log" {
		t.Errorf("a decision says %v", said)
	}
	by := decided
	for _, s := range spans {
		if s.GetTraceState() != "vendor=state" {
			t.Errorf("%s has the state %q", s.GetName(), s.GetTraceState())
		}
		handedOn = handedOn || s.GetName() == "hand on"
	}
	if handedOn {
		handed := below(t, spans, decided.GetSpanId(), "hand on")
		by = below(t, spans, handed.GetSpanId(), "decide for peer")
		if handed.instance != request.instance || by.instance == request.instance {
			t.Errorf("one instance handed a take on to itself:\n%s", told(spans))
		}
		if got := attributes(by.GetAttributes()); got["ratelimitd.policy"] != "log" || got["ratelimitd.outcome"] != "allowed" {
			t.Errorf("the owner says %v", got)
		}
	}
	below(t, spans, by.GetSpanId(), "fence")
	wrote := below(t, spans, by.GetSpanId(), "cassandra INSERT")
	trip := attributes(wrote.GetAttributes())
	inserts := strings.HasPrefix(trip["db.query.text"], "INSERT INTO events_hour (key, ")
	if trip["ratelimitd.trip.calls"] != "1" || !inserts || wrote.instance != by.instance {
		t.Errorf("what was written is told as %v of %s", trip, wrote.instance)
	}
	return handedOn
}

// known are the attributes that spans may have. A new one must not identify a caller.
var known = []string{
	"http.request.method", "http.route", "http.response.status_code", "rpc.system", "rpc.method", "ratelimitd.code",
	"ratelimitd.op", "ratelimitd.policy", "ratelimitd.limit", "ratelimitd.algorithm", "ratelimitd.outcome", "ratelimitd.demands",
	"ratelimitd.remembered", "ratelimitd.member", "ratelimitd.view",
	"db.system.name", "db.query.text", "db.operation.batch.size", "server.address", "ratelimitd.trip.calls", "ratelimitd.trip.attempt",
}

// checkSaysNobody fails if a span has an identifier.
func checkSaysNobody(t *testing.T, s received) {
	t.Helper()
	for name, value := range attributes(s.GetAttributes()) {
		if !slices.Contains(known, name) {
			t.Errorf("%s has the attribute %s, of which nobody knows what it says", s.GetName(), name)
		}
		if name == "db.query.text" && strings.ContainsAny(value, "'\"") {
			t.Errorf("%s has a value in its text: %s", s.GetName(), value)
		}
	}
	if whole := s.String(); strings.Contains(whole, "15112345") || len(s.GetEvents()) > 0 {
		t.Errorf("%s says who asked: %s", s.GetName(), whole)
	}
}

// checkExemplars holds that histograms of s show traces.
func checkExemplars(t *testing.T, s *clitest.Server, histograms ...string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, s.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range histograms {
		if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return strings.HasPrefix(line, name+"_bucket") && strings.Contains(line, `# {trace_id="`+strings.Repeat("0", 29)+"1f")
		}) {
			t.Errorf("%s shows no trace:\n%s", name, text)
		}
	}
}

// TestClientIsPartOfTheTrace has the Go client take a unit within a span: the service goes on with that trace.
func TestClientIsPartOfTheTrace(t *testing.T) {
	collector := newReceiver(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
	s := start(t, nil)
	limits, err := client.New(s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	if d, err := limits.Take(ctx, client.Demand{Policy: "login", Identifier: "somebody"}); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
	caller := span.SpanID()
	spans := collector.of(span.TraceID().String())
	below(t, spans, below(t, spans, caller[:], "POST /v1/take").GetSpanId(), "decide")
}

// TestNothingIsTracedUnlessAsked holds that a service sends spans to nobody, though callers send traces.
func TestNothingIsTracedUnlessAsked(t *testing.T) {
	for name, value := range map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "none"} {
		t.Run(name, func(t *testing.T) {
			collector := newReceiver(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
			t.Setenv(name, value)
			s := start(t, nil)
			takeTraced(t, s.URL, "login", "somebody", strings.Repeat("1f", 16))
			s.Stop()
			if code := s.Wait(t); code != command.ExitOK || len(collector.all()) > 0 {
				t.Errorf("exit code %d, %d spans", code, len(collector.all()))
			}
		})
	}
}

// TestLastSpansAreSent checks that spans right before the end are not lost, by either protocol's default
// settings, and that a name that the environment gives stands.
func TestLastSpansAreSent(t *testing.T) {
	collector := newReceiver(t)
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.url+"/v1/traces")
	s := start(t, nil)
	trace := strings.Repeat("2f", 16)
	takeTraced(t, s.URL, "login", "somebody", trace)
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK || len(collector.of(trace)) != 2 {
		t.Errorf("exit code %d, spans:\n%s", code, told(collector.of(trace)))
	}
}
