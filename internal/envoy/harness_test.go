package envoy_test

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/envoy"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// front is a service that listens, and a client of it.
type front struct {
	t      *testing.T
	engine *limiter.Engine
	server *envoy.Server
	conn   *grpc.ClientConn
	client rls.RateLimitServiceClient
	clock  *clock
	stop   context.CancelFunc // ends the service
	ended  chan error         // what its Run returned

	mu       sync.Mutex
	observed []string            // methods with their codes
	outcomes []envoy.Outcome     // of descriptors
	domains  map[string]struct{} // of descriptors
}

// clock is the clock of a service, which only a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) turn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// settings of a front. The zero value is a ready service over the embedded store.
type settings struct {
	store   store.Store // nil: the embedded one
	options envoy.Options
	listen  envoy.ListenerOptions
	timeout time.Duration // of the store
	drain   time.Duration // zero: long
}

// newFront returns a service of the file of policies.
func newFront(t *testing.T, file string, set settings) *front {
	t.Helper()
	f := &front{t: t, clock: &clock{now: time.Date(2026, 11, 21, 12, 0, 15, 0, time.UTC)}, domains: make(map[string]struct{})}
	if set.store == nil {
		set.store = embedded.New(&embedded.Options{Now: f.clock.Now})
	}
	f.engine = limiter.New(set.store, &limiter.Options{
		Now: f.clock.Now, StoreTimeout: set.timeout, Local: embedded.New(nil), Identifiers: identifier.Reader,
	})
	if set.options.Observe == nil {
		set.options.Observe, set.options.Descriptor = f.observe, f.descriptor
	}
	f.server = envoy.New(f.engine, &set.options)
	f.load(file)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	set.listen.Connections, set.listen.Drain = cmp.Or(set.listen.Connections, 100), cmp.Or(set.drain, 10*time.Second)
	f.serve(envoy.NewListener(f.server, listener, set.listen), listener.Addr())
	return f
}

// load puts the file of policies in force.
func (f *front) load(file string) {
	f.t.Helper()
	parsed, err := policyfile.ParseFile("p.yaml", []byte(file))
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.engine.SetPolicies(parsed.Policies); err != nil {
		f.t.Fatal(err)
	}
	f.server.SetMapping(parsed.Envoy)
}

func (f *front) serve(l *envoy.Listener, address net.Addr) {
	ctx, cancel := context.WithCancel(context.Background())
	f.stop, f.ended = cancel, make(chan error, 1)
	go func() { f.ended <- l.Run(ctx) }()
	conn, err := grpc.NewClient(address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.conn, f.client = conn, rls.NewRateLimitServiceClient(conn)
	f.t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		select {
		case err := <-f.ended:
			if err != nil {
				f.t.Errorf("Run: %v", err)
			}
		case <-time.After(20 * time.Second):
			f.t.Error("the listener did not stop within 20 s")
		}
	})
}

func (f *front) observe(method, code string, _ time.Duration, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.observed = append(f.observed, method+" "+code)
}

func (f *front) descriptor(domain string, became envoy.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcomes = append(f.outcomes, became)
	f.domains[domain] = struct{}{}
}

// seen returns the observations since the last call, one line each.
func (f *front) seen() (requests []string, outcomes []envoy.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests, outcomes = f.observed, f.outcomes
	f.observed, f.outcomes = nil, nil
	return requests, outcomes
}

// told reports whether a descriptor of this domain was observed.
func (f *front) told(domain string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, told := f.domains[domain]
	return told
}

// descriptor returns a descriptor of entries "key=value".
func descriptor(entries ...string) *common.RateLimitDescriptor {
	d := new(common.RateLimitDescriptor)
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

// hits returns d with a hits_addend of its own.
func hits(d *common.RateLimitDescriptor, n uint64) *common.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

// request returns a request of the domain edge.
func request(descriptors ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

// ask sends a request about one descriptor.
func (f *front) ask(entries ...string) *rls.RateLimitResponse {
	return f.send(request(descriptor(entries...)))
}

func (f *front) send(r *rls.RateLimitRequest) *rls.RateLimitResponse {
	f.t.Helper()
	return f.answered(f.client.ShouldRateLimit(context.Background(), r))
}

func (f *front) answered(response *rls.RateLimitResponse, err error) *rls.RateLimitResponse {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	return response
}

// summary returns the overall code and, for each status, its code and remaining units, with the limit of those that a
// limit decided.
func summary(r *rls.RateLimitResponse) string {
	parts := []string{r.GetOverallCode().String()}
	for _, s := range r.GetStatuses() {
		text := fmt.Sprintf("%s %d", s.GetCode(), s.GetLimitRemaining())
		if l := s.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" of %d/%s %s %ds", l.GetRequestsPerUnit(), l.GetUnit(), l.GetName(), s.GetDurationUntilReset().GetSeconds())
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// wants fails unless r's summary is want.
func (f *front) wants(r *rls.RateLimitResponse, want string) {
	f.t.Helper()
	if got := summary(r); got != want {
		f.t.Errorf("got  %s\nwant %s", got, want)
	}
}
