package api

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The policies of the stories.
var (
	smsSend = policy.Policy{Name: "sms-send", Description: "one-time codes", Limits: []policy.Limit{
		{Name: "per-hour", Algorithm: "sliding-log", Limit: 3, Window: time.Hour},
		{Name: "per-day", Algorithm: "fixed-window", Limit: 4, Window: 24 * time.Hour},
	}}
	tail   = policy.Policy{Name: "api", Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}}}
	closed = policy.Policy{Name: "closed", Limits: []policy.Limit{
		{Name: "none", Algorithm: "fixed-window", Window: 1500 * time.Millisecond},
	}}
	shadow  = policy.Policy{Name: "shadow", Mode: policy.ModeShadow, Limits: []policy.Limit{perMinute(1)}}
	off     = policy.Policy{Name: "off", Mode: policy.ModeOff, Limits: []policy.Limit{perMinute(1)}}
	lenient = policy.Policy{Name: "lenient", OnStoreError: policy.OnStoreErrorAllow, Limits: []policy.Limit{perMinute(1)}}
	bucket  = policy.Policy{Name: "bucket", Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 6, Window: time.Minute, Burst: 2}}}
	monthly = policy.Policy{Name: "monthly", Limits: []policy.Limit{
		{Name: "per-month", Algorithm: "fixed-window", Limit: 2, Calendar: policy.CalendarMonth, Timezone: "Europe/Berlin"},
	}}
	blocks = policy.Policy{Name: "blocks", Limits: []policy.Limit{perMinute(1)},
		BlockFor: 10 * time.Minute, BlockFactor: 2, BlockMax: time.Hour}
	cluster = policy.Policy{Name: "cluster", Limits: []policy.Limit{perMinute(1)},
		Consistency: policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}}
)

func perMinute(n int64) policy.Limit {
	return policy.Limit{Name: "per-minute", Algorithm: "fixed-window", Limit: n, Window: time.Minute}
}

// front is a server in front of a real engine, with a clock that stands still and a log in memory.
type front struct {
	t      *testing.T
	server *Server
	store  *frail
	log    *logBuffer
	clock
}

// clock is the time of a test. Timers of the engine may read it while the test sets it.
type clock struct{ at atomic.Pointer[time.Time] }

func (c *clock) now() time.Time { return *c.at.Load() }

func (c *clock) set(t time.Time) { c.at.Store(&t) }

// frail is the embedded store, which fails with err if that is set.
type frail struct {
	*embedded.Store
	err    error
	before func() // called before each Update; may be nil
}

func (f *frail) Read(ctx context.Context, q *store.Query) (store.State, error) {
	if f.err != nil {
		return store.State{}, f.err
	}
	return f.Store.Read(ctx, q)
}

func (f *frail) Write(ctx context.Context, w *store.Write) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Write(ctx, w)
}

func (f *frail) Update(ctx context.Context, q *store.Query, decide func(*store.State, *store.Write)) error {
	if f.before != nil {
		f.before()
	}
	if f.err != nil {
		return f.err
	}
	return f.Store.Update(ctx, q, decide)
}

func (f *frail) UpdateAll(ctx context.Context, q []store.Query, decide func([]store.State, []store.Write)) error {
	if f.before != nil {
		f.before()
	}
	if f.err != nil {
		return f.err
	}
	return f.Store.UpdateAll(ctx, q, decide)
}

var errStoreDown = fmt.Errorf("no host answers: %w", store.ErrUnavailable)

func newFront(t *testing.T, opts *Options, policies ...policy.Policy) *front {
	t.Helper()
	f := &front{t: t, log: new(logBuffer)}
	f.set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	f.store = &frail{Store: embedded.New(&embedded.Options{Now: f.now})}
	engine := limiter.New(f.store, &limiter.Options{Now: f.now, Identifiers: identifier.Reader})
	if err := engine.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	if opts == nil {
		opts = &Options{}
	}
	opts.Now = f.now
	opts.Logger = slog.New(slog.NewTextHandler(f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	f.server = New(engine, opts)
	return f
}

// anybody returns the caller of a server without authentication.
func anybody() *auth.Caller {
	caller, _ := new(auth.Keyring).Caller("", nil)
	return caller
}

// logBuffer is a log in memory to which several requests may write at once.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// do sends one request, and fails unless it and its answer are as in the OpenAPI document. Headers are pairs; a POST
// without a Content-Type sends JSON.
func (f *front) do(method, path, body string, headers ...string) *http.Response {
	f.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("X-Request-ID", "test")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Del(headers[i])
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	checkContract(f.t, r, body, w)
	return w.Result()
}

// story sends requests one after the other, and compares the answers with the golden file of this name. RECEIPT,
// RELEASE and RESERVATION in a body stand for the last answered one.
func (f *front) story(name string, steps []step) {
	f.t.Helper()
	var told strings.Builder
	start, last := f.now(), map[string]string{}
	for _, s := range steps {
		f.set(start.Add(s.at))
		if s.method == "" {
			s.method = http.MethodPost
		}
		body := s.body
		for word, token := range last {
			body = strings.ReplaceAll(body, word, token)
		}
		answer := dump(f.t, f.do(s.method, s.path, body, s.headers...))
		for _, member := range tokenMember.FindAllStringSubmatch(answer, -1) {
			last[strings.ToUpper(member[1])] = member[2]
		}
		answer = tokenMember.ReplaceAllStringFunc(answer, func(member string) string {
			return strings.ReplaceAll(member, tokenMember.FindStringSubmatch(member)[2], "…")
		})
		fmt.Fprintf(&told, "> %v %s %s %s %s\n%s\n", s.at, s.method, s.path, strings.Join(s.headers, " "), s.body, answer)
	}
	golden(f.t, name, told.String())
}

// tokenMember matches a receipt, a release or a reservation, which differ in each run.
var tokenMember = regexp.MustCompile(`"(receipt|release|reservation)":"([A-Za-z0-9_-]+)"`)

// step is one request of a story, so long after its start.
type step struct {
	at      time.Duration
	method  string // "": POST
	path    string
	body    string
	headers []string
}

func dump(t *testing.T, res *http.Response) string {
	t.Helper()
	var lines []string
	for name, values := range res.Header {
		if name != "X-Request-Id" && name != "Content-Length" {
			lines = append(lines, name+": "+strings.Join(values, ", ")+"\n")
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%d\n%s%s", res.StatusCode, strings.Join(lines, ""), bodyOf(t, res))
}

func bodyOf(t *testing.T, res *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(path, []byte(got), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (run with -update if that is meant):\n%s", path, firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got: %s\nwant: %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
