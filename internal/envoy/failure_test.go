package envoy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// byStoreError is a file whose domain edge has a policy for each on_store_error.
const byStoreError = `
policies:
  - {name: deny, limits: [{algorithm: fixed-window, limit: 2, window: 1m}]}
  - {name: allow, limits: [{algorithm: fixed-window, limit: 2, window: 1m}], on_store_error: allow}
  - {name: local, limits: [{algorithm: fixed-window, limit: 2, window: 1m}], on_store_error: local}
envoy:
  domains:
    - domain: edge
      descriptors:
        - {key: deny, policy: deny}
        - {key: allow, policy: allow}
        - {key: local, policy: local}
        - {key: quota, policy: allow, quota: true}
`

// shaky is a shared store that can fail or wait.
type shaky struct {
	store.Store
	fails   atomic.Pointer[error]
	waits   atomic.Bool   // until its caller gives up
	panics  atomic.Bool   // instead of answering
	calls   atomic.Int64  // that came
	release chan struct{} // closed: nobody waits any more
}

func newShaky() *shaky {
	return &shaky{Store: embedded.New(nil), release: make(chan struct{})}
}

func (s *shaky) fail(err error) { s.fails.Store(&err) }

func (s *shaky) before(ctx context.Context) error {
	s.calls.Add(1)
	if s.panics.Load() {
		panic("nobody expected this")
	}
	if s.waits.Load() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		case <-s.release:
		}
	}
	if err := s.fails.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *shaky) Read(ctx context.Context, q *store.Query) (store.State, error) {
	if err := s.before(ctx); err != nil {
		return store.State{}, err
	}
	return s.Store.Read(ctx, q)
}

func (s *shaky) Write(ctx context.Context, w *store.Write) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	return s.Store.Write(ctx, w)
}

func (s *shaky) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, s, w, wrote)
}

func (s *shaky) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, s, w, q)
}

// wantCode fails unless err has code and its message contains text.
func wantCode(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || !strings.Contains(s.Message(), text) {
		t.Errorf("answered %v, want %v that says %q", err, code, text)
	}
}

// TestStoreGone holds the answer of each on_store_error: an error, for which failure_mode_deny of Envoy decides, or a
// decision. If another descriptor denies, that is the answer.
func TestStoreGone(t *testing.T) {
	s := newShaky()
	f := newFront(t, byStoreError, settings{store: s})
	s.fail(store.ErrUnavailable)
	_, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("deny=x")))
	wantCode(t, err, codes.Unavailable, "the store does not answer")
	f.wants(f.ask("allow=x"), "OK; OK 2 of 2/MINUTE allow 0s")
	f.wants(f.ask("local=x"), "OK; OK 1 of 2/MINUTE local 45s")
	f.wants(f.ask("local=x"), "OK; OK 0 of 2/MINUTE local 45s")
	f.wants(f.ask("local=x"), "OVER_LIMIT; OVER_LIMIT 0 of 2/MINUTE local 45s")
	_, err = f.client.ShouldRateLimit(context.Background(), request(descriptor("deny=x"), descriptor("allow=x"), descriptor("quota=x")))
	wantCode(t, err, codes.Unavailable, "the store does not answer")
	f.wants(f.send(request(descriptor("deny=x"), descriptor("local=x"))), "OVER_LIMIT; UNKNOWN 0; OVER_LIMIT 0 of 2/MINUTE local 45s")
	f.wants(f.ask("none=x"), "OK; OK 0")
	requests, outcomes := f.seen()
	if requests[0] != "ShouldRateLimit Unavailable" || outcomes[0] != envoy.OutcomeFailed {
		t.Errorf("observed %q of %q", requests[0], outcomes[0])
	}
	s.fail(nil)
	f.wants(f.ask("deny=x"), "OK; OK 1 of 2/MINUTE deny 45s")
}

// TestStoreSlow holds that there is an answer after the store timeout, whether or not the store answers, and an error
// for a caller that gives up before.
func TestStoreSlow(t *testing.T) {
	store := newShaky()
	f := newFront(t, byStoreError, settings{store: store, timeout: 50 * time.Millisecond})
	store.waits.Store(true)
	defer close(store.release)
	_, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("deny=x"), descriptor("deny=y")))
	wantCode(t, err, codes.Unavailable, "the store does not answer")
	f.wants(f.ask("allow=x"), "OK; OK 2 of 2/MINUTE allow 0s")
	f.wants(f.ask("local=x"), "OK; OK 1 of 2/MINUTE local 45s")
}

// TestEnvoyGivesUp holds that a request whose caller has given up ends with the store timeout, and is not a failure.
func TestEnvoyGivesUp(t *testing.T) {
	store := newShaky()
	f := newFront(t, byStoreError, settings{store: store, timeout: 500 * time.Millisecond})
	store.waits.Store(true)
	defer close(store.release)
	ctx, cancel := context.WithCancel(context.Background())
	answered := make(chan error, 1)
	go func() {
		_, err := f.client.ShouldRateLimit(ctx, request(descriptor("deny=x")))
		answered <- err
	}()
	eventually(t, "the store is asked", func() bool { return store.calls.Load() > 0 })
	cancel()
	wantCode(t, <-answered, codes.Canceled, "")
	var seen []string
	eventually(t, "the request ends", func() bool {
		requests, _ := f.seen()
		seen = append(seen, requests...)
		return len(seen) > 0
	})
	if seen[0] != "ShouldRateLimit Canceled" {
		t.Errorf("observed %q", seen)
	}
}

// TestSeveralDescriptorsAreAskedAtOnce holds that descriptors wait for the store together.
func TestSeveralDescriptorsAreAskedAtOnce(t *testing.T) {
	store := newShaky()
	f := newFront(t, byStoreError, settings{store: store, timeout: 5 * time.Minute})
	store.waits.Store(true)
	answered := make(chan *rls.RateLimitResponse, 1)
	go func() { answered <- f.send(request(descriptor("deny=x"), descriptor("deny=y"), descriptor("local=z"))) }()
	eventually(t, "all three wait for the store", func() bool { return store.calls.Load() == 3 })
	close(store.release)
	f.wants(<-answered, "OK; OK 1 of 2/MINUTE deny 45s; OK 1 of 2/MINUTE deny 45s; OK 1 of 2/MINUTE local 45s")
}

// TestPanicsAreErrors holds that a panic in a descriptor fails its request, and not the service.
func TestPanicsAreErrors(t *testing.T) {
	store := newShaky()
	log := new(logBook)
	f := newFront(t, byStoreError, settings{store: store, options: envoy.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}})
	store.panics.Store(true)
	for _, r := range []*rls.RateLimitRequest{
		request(hits(descriptor("deny=x"), 0)), request(hits(descriptor("deny=x"), 0), hits(descriptor("deny=y"), 0)),
	} {
		_, err := f.client.ShouldRateLimit(context.Background(), r)
		wantCode(t, err, codes.Internal, "the server failed; its log says how")
	}
	store.panics.Store(false)
	f.wants(f.ask("deny=x"), "OK; OK 1 of 2/MINUTE deny 45s")
	if text := log.String(); strings.Count(text, "nobody expected this") != 1 { // within a second
		t.Errorf("logged\n%s\nwant one panic", text)
	}
}

// TestMistakesNameTheField holds that requests that can't be served are refused with the wrong field.
func TestMistakesNameTheField(t *testing.T) {
	f := newFront(t, byStoreError, settings{})
	with := func(change func(*common.RateLimitDescriptor)) *rls.RateLimitRequest {
		d := descriptor("deny=x")
		change(d)
		return request(descriptor("allow=x"), d)
	}
	many := make([]*common.RateLimitDescriptor, 65)
	for i := range many {
		many[i] = descriptor("deny=x")
	}
	for want, r := range map[string]*rls.RateLimitRequest{
		"domain: it is empty":         {Descriptors: many[:1]},
		"descriptors: there are none": request(),
		"descriptors: 65 of them":     request(many...),
		"descriptors[1].entries: 65 of": with(func(d *common.RateLimitDescriptor) {
			d.Entries = make([]*common.RateLimitDescriptor_Entry, 65)
		}),
		"descriptors[1].is_negative_hits:": with(func(d *common.RateLimitDescriptor) { d.IsNegativeHits = true }),
		"descriptors[1].limit: the policy takes no limit from requests: remove it": with(func(d *common.RateLimitDescriptor) {
			d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
		}),
		"descriptors[1].hits_addend: 1000000000001 is out of range: use 0 to": with(func(d *common.RateLimitDescriptor) {
			d.HitsAddend = wrapperspb.UInt64(policy.MaxCost + 1)
		}),
	} {
		_, err := f.client.ShouldRateLimit(context.Background(), r)
		wantCode(t, err, codes.InvalidArgument, want)
	}
	if got := f.send(request(many[:64]...)); len(got.GetStatuses()) != 64 {
		t.Errorf("%d statuses, want all 64", len(got.GetStatuses()))
	}
	if _, outcomes := f.seen(); len(outcomes) != 64 {
		t.Errorf("told of %d descriptors, want those of the last request only", len(outcomes))
	}
}

// TestManyDescriptorsTakeNoMemory holds that many descriptors take no memory beside the message, which may have a
// million.
func TestManyDescriptorsTakeNoMemory(t *testing.T) {
	f := newFront(t, byStoreError, settings{})
	many := request(slices.Repeat([]*common.RateLimitDescriptor{descriptor("deny=x")}, 1<<20)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := f.server.ShouldRateLimit(context.Background(), many)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "1048576 of them") {
		t.Error(err)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
		t.Errorf("%d bytes to refuse a request", taken)
	}
}

// TestLongHeadersCannotEscape holds that a client with empty headers, or as long as Envoy accepts them, is counted: an
// error might let it pass.
func TestLongHeadersCannotEscape(t *testing.T) {
	f := newFront(t, `
policies: [{name: one, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}]
envoy:
  domains: [{domain: edge, descriptors: [{key: a, policy: one}, {key: b, policy: one, identifier: b}]}]
`, settings{})
	long := strings.Repeat("x", 60<<10)
	for _, value := range []string{"", long, long + "y"} {
		for _, key := range []string{"a=", "b="} {
			f.wants(f.ask(key+value), "OK; OK 0 of 1/MINUTE one 45s")
			f.wants(f.ask(key+value), "OVER_LIMIT; OVER_LIMIT 0 of 1/MINUTE one 45s")
		}
	}
	several := request(descriptor("a="+long), descriptor("b="+long), descriptor("c="+long))
	f.wants(f.send(several), "OVER_LIMIT; OVER_LIMIT 0 of 1/MINUTE one 45s; OVER_LIMIT 0 of 1/MINUTE one 45s; OK 0")
	_, err := f.client.ShouldRateLimit(context.Background(), request(descriptor("a="+strings.Repeat("x", 1<<20))))
	wantCode(t, err, codes.ResourceExhausted, "larger than max")
}

// rawCodec sends messages as they are on the wire.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return proto.Unmarshal(data.Materialize(), v.(proto.Message))
}

// TestBytesThatAreNoTextCannotEscape holds that a client with headers that are not UTF-8, which Envoy passes on, is
// counted by them.
func TestBytesThatAreNoTextCannotEscape(t *testing.T) {
	f := newFront(t, `
policies: [{name: one, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}]
envoy:
  domains: [{domain: edge, descriptors: [{key: a, policy: one}, {key: b, policy: one, identifier: b}]}]
`, settings{})
	send := func(bytesOf string) *rls.RateLimitResponse {
		t.Helper()
		several := request(descriptor("a=192.0.2.1"), descriptor("b=placeholder"))
		several.HitsAddend = 1
		wire, err := proto.Marshal(several)
		if err != nil {
			t.Fatal(err)
		}
		if len(bytesOf) != len("placeholder") {
			t.Fatalf("%q is as long as no placeholder", bytesOf)
		}
		wire = bytes.ReplaceAll(wire, []byte("placeholder"), []byte(bytesOf))
		response := new(rls.RateLimitResponse)
		return f.answered(response, f.conn.Invoke(context.Background(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
			wire, response, grpc.ForceCodecV2(rawCodec{})))
	}
	f.wants(send("not text \xff\xfe"), "OK; OK 0 of 1/MINUTE one 45s; OK 0 of 1/MINUTE one 45s")
	f.wants(send("not text \xff\xfe"), "OVER_LIMIT; OVER_LIMIT 0 of 1/MINUTE one 45s; OVER_LIMIT 0 of 1/MINUTE one 45s")
	f.wants(send("not text \xff\xfd"), "OVER_LIMIT; OVER_LIMIT 0 of 1/MINUTE one 45s; OK 0 of 1/MINUTE one 45s")
	for _, wire := range [][]byte{{0xff}, {0x0a, 0x05, 'e'}, {0x12, 0x03, 0x0a, 0x05, 'x'}} {
		err := f.conn.Invoke(context.Background(), "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
			wire, new(rls.RateLimitResponse), grpc.ForceCodecV2(rawCodec{}))
		wantCode(t, err, codes.Internal, "unmarshal")
	}
}

// TestUnreadableValuesCannotEscape holds that a value that a policy can't read is denied if limits are enforced, and
// that a report of it is an error.
func TestUnreadableValuesCannotEscape(t *testing.T) {
	f := newFront(t, `
policies:
  - {name: one, limits: [{algorithm: fixed-window, limit: 1, window: 1m}], normalize: ip}
  - {name: tried, limits: [{algorithm: fixed-window, limit: 1, window: 1m}], normalize: ip, mode: shadow}
envoy:
  domains:
    - domain: edge
      descriptors: [{key: a, policy: one, identifier: a}, {key: b, policy: tried, identifier: b}]
`, settings{})
	f.wants(f.ask("a=::ffff:192.0.2.1"), "OK; OK 0 of 1/MINUTE one 45s")
	f.wants(f.ask("a=192.0.2.1"), "OVER_LIMIT; OVER_LIMIT 0 of 1/MINUTE one 45s")
	for _, value := range []string{"", "nobody"} {
		f.wants(f.ask("a="+value), "OVER_LIMIT; OVER_LIMIT 0")
		f.wants(f.ask("b="+value), "OK; OK 0")
	}
	err := f.conn.Invoke(context.Background(), "/kuadrant.service.ratelimit.v1.RateLimitService/Report",
		request(descriptor("a=nobody")), new(rls.RateLimitResponse))
	wantCode(t, err, codes.InvalidArgument, "can't read")
}

// TestNothingOfADescriptorIsLogged holds that no failure logs a part of a descriptor.
func TestNothingOfADescriptorIsLogged(t *testing.T) {
	store := newShaky()
	log := new(logBook)
	f := newFront(t, byStoreError, settings{store: store, options: envoy.Options{
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}})
	const needle = "+4915112345678"
	store.fail(errors.New("the store is nonsense"))
	for _, r := range []*rls.RateLimitRequest{
		request(descriptor("deny=" + needle)), request(descriptor(needle + "=" + needle)), {Domain: needle},
		request(hits(descriptor("deny="+needle), policy.MaxCost+1)),
		{Domain: needle, Descriptors: []*common.RateLimitDescriptor{descriptor("deny=" + needle)}},
	} {
		if _, err := f.client.ShouldRateLimit(context.Background(), r); strings.Contains(fmt.Sprint(err), needle) {
			t.Errorf("the answer %v holds what was sent", err)
		}
	}
	store.panics.Store(true)
	_, _ = f.client.ShouldRateLimit(context.Background(), request(descriptor("deny="+needle)))
	if text := log.String(); strings.Contains(text, needle) || !strings.Contains(text, "Envoy's request failed") {
		t.Errorf("logged\n%s", text)
	}
	if f.told(needle) {
		t.Error("a domain that is not mapped was told of")
	}
}

// TestFailuresAreLoggedOnceASecond holds that the log does not grow with the load, and that mistakes of callers hide no
// failure.
func TestFailuresAreLoggedOnceASecond(t *testing.T) {
	s := newShaky()
	log := new(logBook)
	turned := &clock{now: time.Unix(1, 0)}
	f := newFront(t, byStoreError, settings{store: s, options: envoy.Options{
		Logger: slog.New(slog.NewTextHandler(log, nil)), Now: turned.Now,
	}})
	s.fail(store.ErrUnavailable)
	for range 2 {
		for range 3 {
			_, _ = f.client.ShouldRateLimit(context.Background(), new(rls.RateLimitRequest)) // without a domain
			_, _ = f.client.ShouldRateLimit(context.Background(), request(descriptor("deny=x")))
		}
		turned.turn(time.Second)
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 2 {
		t.Errorf("%d warnings in two seconds, want 2:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "level=INFO"); n != 2 {
		t.Errorf("%d mistakes in two seconds, want 2:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "unlogged=2"); n != 2 {
		t.Errorf("%d lines say that two had none, want 2:\n%s", n, log.String())
	}
}

// logBook is a log that can be read.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}
