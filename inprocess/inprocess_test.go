package inprocess_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/inprocess"
	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

// both has the methods that a client and limits in process share.
type both interface {
	Do(context.Context, client.Call) (client.Decision, error)
	Check(context.Context, ...client.Demand) (client.Decision, error)
	Record(context.Context, ...client.Demand) (client.Decision, error)
	Take(context.Context, ...client.Demand) (client.Decision, error)
	Wait(context.Context, ...client.Demand) (client.Decision, error)
	Reserve(context.Context, time.Duration, ...client.Demand) (client.Decision, error)
	Settle(context.Context, string) (client.Decision, error)
	SettleAt(context.Context, string, int64) (client.Decision, error)
	Release(context.Context, string) error
	Batch(context.Context, []client.Call) ([]client.Result, error)
	Refund(context.Context, string) error
	Confirm(context.Context, string) error
	Reset(context.Context, string, string) error
	Close() error
}

var (
	_ both = (*client.Client)(nil)
	_ both = (*inprocess.Limits)(nil)
)

func TestMain(m *testing.M) { cassandratest.Main(m) }

const policies = `
policies:
  - name: log
    limits: [{name: per-hour, algorithm: sliding-log, limit: 3, window: 1h}]
  - name: window
    limits:
      - {algorithm: fixed-window, limit: 5, window: 1m}
      - {algorithm: sliding-tail, limit: 9, window: 90s}
    block_for: 1m
  - name: closed
    limits: [{algorithm: token-bucket, limit: 0, window: 1m}]
  - name: shadow
    limits: [{algorithm: leaky-bucket, limit: 1, window: 1500ms}]
    mode: shadow
  - name: off
    limits: [{algorithm: fixed-window, limit: 1, window: 1m}]
    mode: off
  - name: phone
    limits: [{algorithm: sliding-log, limit: 2, window: 1m}]
    normalize: e164
    derive: [{policy: country, from: country}]
  - name: country
    limits: [{algorithm: fixed-window, limit: 4, window: 1m}]
`

func demand(policy, identifier string, cost int64) client.Demand {
	return client.Demand{Policy: policy, Identifier: identifier, Cost: cost}
}

func open(t *testing.T, opts *inprocess.Options) *inprocess.Limits {
	t.Helper()
	limits, err := inprocess.Open(t.Context(), policies, opts)
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// TestSaysWhatAServerSays makes the same calls of both, with the same clock, and compares all
// that they answer.
func TestSaysWhatAServerSays(t *testing.T) {
	service := ratelimittest.New(t, policies)
	var now atomic.Pointer[time.Time]
	turn := func(by time.Duration) {
		next := time.Now().Truncate(time.Hour).Add(time.Hour) // both count alike from here on
		if last := now.Load(); last != nil {
			next = last.Add(by)
		}
		now.Store(&next)
		service.SetTime(next)
	}
	turn(0)
	limits := open(t, &inprocess.Options{Now: func() time.Time { return *now.Load() }, StoreTimeout: time.Minute})
	defer limits.Close()
	remote := service.Client(nil)
	for i, c := range calls() {
		turn(7 * time.Second)
		same(t, fmt.Sprint(i, c), limits, remote, c)
	}
	turn(time.Hour)
	batch(t, limits, remote)
	tokens(t, limits, remote)
}

func calls() (all []client.Call) {
	for range 4 {
		for _, op := range []client.Op{client.OpCheck, client.OpTake, client.OpRecord} {
			for _, policy := range []string{"log", "window", "closed", "shadow", "off", "unknown"} {
				all = append(all, client.Call{Op: op, Demands: []client.Demand{demand(policy, "a", 1)}})
			}
			all = append(all,
				client.Call{Op: op, Demands: []client.Demand{demand("log", "b", 1), demand("window", "b", 2)}},
				client.Call{Op: op, Demands: []client.Demand{demand("shadow", "b", 1), demand("log", "c", 1)}},
				client.Call{Op: op, Demands: []client.Demand{demand("phone", "+49 151 12345678", 0)}},
				client.Call{Op: op, Demands: []client.Demand{demand("phone", "anna", 0)}},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "a", 1), demand("log", "a", 1)}},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "", 1)}},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "a", 4)}},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "a", 1<<60)}},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "\xff", 1)}},
				client.Call{Op: op},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "d", 1)}, IdempotencyKey: "k" + string(op)},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "e", 1)}, IdempotencyKey: "k" + string(op)},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "f", 1)}, Reserve: time.Second},
				client.Call{Op: op, Demands: []client.Demand{demand("log", "f", 1)}, Reservation: "x"},
			)
		}
	}
	return append(all, client.Call{Op: "dance"}, client.Call{Op: client.OpConfirm, Receipt: "x"})
}

// same makes call of both, and compares the answers.
func same(t *testing.T, what string, limits, remote both, call client.Call) {
	t.Helper()
	got, err := limits.Do(t.Context(), call)
	want, wantErr := remote.Do(t.Context(), call)
	sameDecision(t, what, got, want)
	sameError(t, what, err, wantErr)
}

func sameDecision(t *testing.T, what string, got, want client.Decision) {
	t.Helper()
	if (got.Receipt == "") != (want.Receipt == "") || (got.Reservation == "") != (want.Reservation == "") {
		t.Errorf("%s: a receipt or a reservation is missing: %+v, want %+v", what, got, want)
	}
	got.Receipt, got.Reservation, want.Receipt, want.Reservation = "", "", "", ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

func sameError(t *testing.T, what string, got, want error) {
	t.Helper()
	if (got == nil) != (want == nil) || client.RecordedOf(got) != client.RecordedOf(want) {
		t.Errorf("%s: %v (%s), want %v (%s)", what, got, client.RecordedOf(got), want, client.RecordedOf(want))
	}
	var p, q *client.Problem
	if errors.As(got, &p) && errors.As(want, &q) && p.Field == "cost" { // a server has read it as JSON
		p.Detail = q.Detail
	}
	if errors.As(got, &p) != errors.As(want, &q) || !reflect.DeepEqual(p, q) {
		t.Errorf("%s:\n got %+v\nwant %+v", what, p, q)
	}
	for _, kind := range []error{
		client.ErrInvalid, client.ErrUnknownPolicy, client.ErrCostTooLarge, client.ErrKeyReused, client.ErrNoReceipt,
	} {
		if errors.Is(got, kind) != errors.Is(want, kind) {
			t.Errorf("%s: %v is %v: %v, want %v", what, got, kind, errors.Is(got, kind), errors.Is(want, kind))
		}
	}
}

func batch(t *testing.T, limits, remote both) {
	t.Helper()
	all := calls()[:24]
	for i := range all { // alone, a client leaves the key of a check out
		if all[i].Op == client.OpCheck {
			all[i].IdempotencyKey = ""
		}
	}
	got, err := limits.Batch(t.Context(), all)
	want, wantErr := remote.Batch(t.Context(), all)
	if err != nil || wantErr != nil || len(got) != len(want) {
		t.Fatalf("%d results (%v), want %d (%v)", len(got), err, len(want), wantErr)
	}
	for i := range got {
		what := fmt.Sprint("in a batch: ", i, all[i])
		sameDecision(t, what, got[i].Decision, want[i].Decision)
		if client.RecordedOf(got[i].Err) != client.RecordedOf(want[i].Err) || (got[i].Err == nil) != (want[i].Err == nil) {
			t.Errorf("%s: %v, want %v", what, got[i].Err, want[i].Err)
		}
	}
	for _, n := range []int{0, 1001} {
		_, err = limits.Batch(t.Context(), make([]client.Call, n))
		_, wantErr = remote.Batch(t.Context(), make([]client.Call, n))
		sameError(t, fmt.Sprint("a batch of ", n), err, wantErr)
	}
}

// tokens brings back what each was given.
func tokens(t *testing.T, limits, remote both) {
	t.Helper()
	for name, l := range map[string]both{"in process": limits, "remote": remote} {
		d := demand("log", "tokens", 1)
		taken, err := l.Take(t.Context(), d)
		if err != nil || l.Refund(t.Context(), taken.Receipt) != nil {
			t.Fatalf("%s: %+v, %v", name, taken, err)
		}
		err = l.Refund(t.Context(), taken.Receipt)
		if !errors.Is(err, client.ErrNoReceipt) || client.RecordedOf(err) != "" {
			t.Errorf("%s: refunded twice: %v (%s)", name, err, client.RecordedOf(err))
		}
		results, err := l.Batch(t.Context(), []client.Call{{Op: client.OpConfirm, Receipt: taken.Receipt}, {Op: client.OpConfirm}})
		if err != nil || results[0].Err != nil || // no limit goes by it
			!errors.Is(results[1].Err, client.ErrInvalid) || client.RecordedOf(results[1].Err) != client.RecordedYes {
			t.Errorf("%s: confirmed: %+v, %v", name, results, err)
		}
		if taken, err = l.Take(t.Context(), d); err != nil || l.Confirm(t.Context(), taken.Receipt) != nil {
			t.Errorf("%s: %+v, %v", name, taken, err)
		}
		if err := l.Reset(t.Context(), "log", "tokens"); err != nil {
			t.Error(err)
		}
		held, err := l.Reserve(t.Context(), time.Minute, d)
		settled, settleErr := l.Settle(t.Context(), held.Reservation)
		if err != nil || settleErr != nil || settled.Used != 1 || settled.Receipt == "" {
			t.Errorf("%s: %+v settled as %+v: %v, %v", name, held, settled, err, settleErr)
		}
		if err := l.Reset(t.Context(), "log", "tokens"); err != nil {
			t.Error(err)
		}
		held, err = l.Reserve(t.Context(), time.Minute, d)
		settled, settleErr = l.SettleAt(t.Context(), held.Reservation, 2)
		if err != nil || settleErr != nil || settled.Used != 2 || settled.Settled != 2 || settled.Over != 1 {
			t.Errorf("%s: %+v settled as %+v: %v, %v", name, held, settled, err, settleErr)
		}
		held, err = l.Reserve(t.Context(), time.Minute, d)
		if released := l.Release(t.Context(), held.Reservation); err != nil || released != nil {
			t.Errorf("%s: released: %v, %v", name, err, released)
		}
		if err := l.Reset(t.Context(), "log", "tokens"); err != nil {
			t.Error(err)
		}
		if got, err := l.Check(t.Context(), d); got.Used != 0 || err != nil {
			t.Errorf("%s: %d used after a reset (%v)", name, got.Used, err)
		}
		if err := l.Reset(t.Context(), "nothing", "a"); !errors.Is(err, client.ErrUnknownPolicy) || client.RecordedOf(err) != client.RecordedNo {
			t.Errorf("%s: %v (%s)", name, err, client.RecordedOf(err))
		}
	}
}

// TestWaitInProcess takes where there is room, and fails at once where there is none in time.
func TestWaitInProcess(t *testing.T) {
	limits := open(t, nil)
	if d, err := limits.Wait(t.Context(), demand("log", "a", 3)); err != nil || !d.Allowed || d.Used != 3 {
		t.Errorf("%+v, %v", d, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	if d, err := limits.Wait(ctx, demand("log", "a", 1)); !errors.Is(err, client.ErrNoRoom) || d.Allowed || d.RetryAfter < 30*time.Minute {
		t.Errorf("a limit that is full for an hour: %+v, %v", d, err)
	}
	if _, err := limits.Wait(t.Context(), demand("closed", "a", 1)); !errors.Is(err, client.ErrNoRoom) {
		t.Errorf("a limit of nothing: %v", err)
	}
}

// TestMiddlewareWithoutAServer limits by an engine in the process.
func TestMiddlewareWithoutAServer(t *testing.T) {
	limits := open(t, nil)
	defer limits.Close()
	h := httplimit.New(limits, nil).Policy("log", httplimit.Cost(2))(http.NotFoundHandler())
	for _, want := range []int{404, 429} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		if w.Code != want {
			t.Errorf("status %d, want %d", w.Code, want)
		}
	}
}

// TestCountsOutliveTheProcess in a folder.
func TestCountsOutliveTheProcess(t *testing.T) {
	opts := &inprocess.Options{DataDir: t.TempDir()}
	for _, want := range []int64{1, 2} {
		limits := open(t, opts)
		d, err := limits.Take(t.Context(), demand("log", "a", 1))
		if err != nil || d.Used != want {
			t.Errorf("%d used, want %d (%v)", d.Used, want, err)
		}
		if err := limits.Close(); err != nil {
			t.Error(err)
		}
		if _, err := limits.Take(t.Context(), demand("log", "a", 1)); !errors.Is(err, client.ErrClosed) {
			t.Errorf("taken after it was closed: %v", err)
		}
		if err := limits.Refund(t.Context(), d.Receipt); !errors.Is(err, client.ErrClosed) {
			t.Errorf("refunded after it was closed: %v", err)
		}
	}
}

// TestBlocksOutliveTheProcess, and hold from the first call on.
func TestBlocksOutliveTheProcess(t *testing.T) {
	var passed atomic.Int64
	opts := &inprocess.Options{DataDir: t.TempDir(), Now: func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }}
	const policies = "policies: [{name: p, block_for: 1h, limits: [{algorithm: sliding-log, limit: 1, window: 1s}]}]"
	for i := range 20 { // what Run finds out by itself may come in time or not
		limits, err := inprocess.Open(t.Context(), policies, opts)
		if err != nil {
			t.Fatal(err)
		}
		d, err := limits.Take(t.Context(), demand("p", "a", 1))
		if i == 0 && err == nil {
			d, err = limits.Take(t.Context(), demand("p", "a", 1))
		}
		if err != nil || d.Allowed {
			t.Errorf("call %d: %+v, %v: want a block", i, d, err)
		}
		passed.Add(int64(time.Minute))
		if err := limits.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBatchThatIsGivenUp says so of what did not begin: nobody was too slow.
func TestBatchThatIsGivenUp(t *testing.T) {
	limits := open(t, nil)
	defer limits.Close()
	calls := make([]client.Call, 1000)
	for i := range calls {
		calls[i] = client.Call{Op: client.OpTake, Demands: []client.Demand{demand("log", fmt.Sprint(i), 1)}}
	}
	results, err := limits.Batch(&briefly{Context: t.Context(), left: 1200}, calls)
	if err != nil {
		t.Fatal(err)
	}
	done := 0
	for i := range results {
		switch err := results[i].Err; {
		case err == nil:
			done++
		case !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnavailable):
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if done == 0 || done == len(calls) {
		t.Errorf("%d of %d calls were made", done, len(calls))
	}
}

// briefly is a context that ends when it was looked at so often.
type briefly struct {
	context.Context
	left int
}

func (b *briefly) Err() error {
	if b.left--; b.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestPoliciesAreReplaced whole or not at all, and counts stay.
func TestPoliciesAreReplaced(t *testing.T) {
	limits := open(t, nil)
	defer limits.Close()
	if _, err := limits.Take(t.Context(), demand("log", "a", 3)); err != nil {
		t.Fatal(err)
	}
	if err := limits.SetPolicies("policies: []"); err == nil {
		t.Error("no policies are taken")
	}
	if err := limits.SetPolicies(strings.Replace(policies, "limit: 3,", "limit: 4,", 1)); err != nil {
		t.Fatal(err)
	}
	if d, err := limits.Take(t.Context(), demand("log", "a", 1)); !d.Allowed || d.Used != 4 || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestWrongOptions(t *testing.T) {
	for name, c := range map[string]struct {
		policies string
		opts     inprocess.Options
	}{
		"no policies":       {"", inprocess.Options{}},
		"two stores":        {policies, inprocess.Options{DataDir: t.TempDir(), Cassandra: &inprocess.Cassandra{}}},
		"a short key":       {policies, inprocess.Options{HashKeys: []inprocess.HashKey{{ID: "a", Secret: []byte("short")}}}},
		"a clock of none":   {policies, inprocess.Options{ClockTolerance: time.Second}},
		"a negative time":   {policies, inprocess.Options{StoreTimeout: -1}},
		"no hosts":          {policies, inprocess.Options{Cassandra: &inprocess.Cassandra{}}},
		"a level of none":   {policies, inprocess.Options{Cassandra: &inprocess.Cassandra{Hosts: []string{"127.0.0.1:1"}, Write: "MANY"}}},
		"a file, no folder": {policies, inprocess.Options{DataDir: "/dev/null"}},
	} {
		if limits, err := inprocess.Open(t.Context(), c.policies, &c.opts); err == nil {
			t.Errorf("%s: opened", name)
			_ = limits.Close()
		}
	}
}

// TestStoreThatIsAway goes by each policy's on_store_error, in time.
func TestStoreThatIsAway(t *testing.T) {
	for onError, want := range map[string]error{"deny": client.ErrUnavailable, "allow": nil, "local": nil} {
		limits := inprocess.OpenAway(t, "policies: [{name: p, on_store_error: "+onError+
			", limits: [{algorithm: sliding-log, limit: 1, window: 1h}]}]")
		d, err := limits.Take(t.Context(), demand("p", "a", 1))
		if !errors.Is(err, want) || err == nil && (!d.Allowed || !d.Degraded) {
			t.Errorf("%s: %+v, %v", onError, d, err)
		}
		var p *client.Problem
		if err != nil && (!errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || p.RetryAfter != time.Second) {
			t.Errorf("%s: %+v", onError, p)
		}
		results, err := limits.Batch(t.Context(), []client.Call{{Op: client.OpRecord, Demands: []client.Demand{demand("p", "b", 1)}}})
		if err != nil || !errors.Is(results[0].Err, want) {
			t.Errorf("%s: %+v, %v", onError, results, err)
		}
	}
}

// TestSharedWithOthers counts in a Cassandra what another process does.
func TestSharedWithOthers(t *testing.T) {
	keyspace := cassandratest.Keyspace(t)
	hosts := cassandratest.Hosts(t)
	if err := cassandra.Migrate(t.Context(), cassandra.Config{Hosts: hosts, Keyspace: keyspace}); err != nil {
		t.Fatal(err)
	}
	const patience = 10 * time.Second // of a busy machine
	opts := &inprocess.Options{
		Cassandra: &inprocess.Cassandra{Hosts: hosts, Keyspace: keyspace}, StoreTimeout: patience, ClockTolerance: patience,
		HashKeys: []inprocess.HashKey{{ID: "a", Secret: make([]byte, 32)}},
	}
	one, other := open(t, opts), open(t, opts)
	for i, l := range []*inprocess.Limits{one, other, one, other} {
		d, err := l.Take(t.Context(), demand("log", "a", 1))
		if err != nil || d.Allowed != (i < 3) {
			t.Errorf("take %d: %+v, %v", i, d, err)
		}
	}
	for _, l := range []*inprocess.Limits{one, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCancelledCallsAreNotMade and say so.
func TestCancelledCallsAreNotMade(t *testing.T) {
	limits := open(t, nil)
	defer limits.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results, err := limits.Batch(ctx, []client.Call{{Op: client.OpTake, Demands: []client.Demand{demand("log", "a", 1)}}})
	if err != nil || !errors.Is(results[0].Err, context.Canceled) || client.RecordedOf(results[0].Err) != client.RecordedNo {
		t.Errorf("%+v, %v", results, err)
	}
	if _, err := limits.Take(ctx, demand("log", "a", 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
