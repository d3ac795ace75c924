package api

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestBatches compares the results of operations, right and wrong, with those in testdata.
func TestBatches(t *testing.T) {
	for name, steps := range map[string][]step{
		"batch": {
			{path: "/v1/batch", body: `{"operations":[` + oneOp + `]}`},
			{path: "/v1/batch", body: operationsOf(
				`{"op":"take","policy":"sms-send","identifier":"a","cost":2}`,
				`{"op":"check","policy":"sms-send","identifier":"a"}`,
				`{"op":"take","policy":"sms-send","identifier":"a","cost":2}`,
				`{"op":"record","policy":"sms-send","identifier":"a","cost":5}`,
				`{"op":"take","policy":"closed","identifier":"a"}`,
				`{"op":"take","demands":[`+one+`,{"policy":"shadow","identifier":"a"}]}`,
				`{"op":"take","policy":"off","identifier":"a"}`,
			)},
			{path: "/v1/batch", body: operationsOf(
				`{"op":"take","policy":"api","identifier":"a","idempotency_key":"1"}`,
				`{"op":"take","policy":"api","identifier":"a","idempotency_key":"1"}`,
				`{"op":"take","policy":"api","identifier":"b","idempotency_key":"1"}`,
				`{"op":"check","policy":"api","identifier":"a","reserve_ms":2000,"cost":7}`,
				`{"op":"check","policy":"api","identifier":"a"}`,
			)},
			{path: "/v1/batch", body: operationsOf(
				`{"op":"record","policy":"api","identifier":"a","reservation":"RESERVATION","cost":7}`,
				`{"op":"check","policy":"api","identifier":"a"}`,
			)},
		},
		"batch-of-mistakes": {
			{path: "/v1/batch", body: operationsOf(
				oneOp,
				`{"op":"take","policy":"api","identifier":"a","cost":"1"}`,
				`{"op":"refund","policy":"api","identifier":"a"}`,
				`{"policy":"api","identifier":"a"}`,
				`{"op":1,"policy":"api","identifier":"a"}`,
				`{"op":"take","policy":"nothing","identifier":"a"}`,
				`{"op":"take","policy":"api","identifier":"a","more":1}`,
				`{"op":"take","policy":"api","identifier":"a","cost":1001}`,
				`{"op":"take","policy":"api","identifier":""}`,
				`"take"`, `null`, `[]`, `{}`,
				`{"op":"take","demands":[]}`,
				`{"op":"take","demands":[`+oneTail+`],"cost":1}`,
				`{"op":"take","demands":[`+oneTail+`,{"policy":"nothing","identifier":"a"}]}`,
				`{"op":"take","demands":[`+oneTail+`,{"policy":"api","identifier":"a","cost":1001}]}`,
				`{"op":"take","demands":[`+oneTail+`,`+oneTail+`]}`,
				`{"op":"take","demands":[{"policy":"nothing","identifier":"a"}]}`,
				`{"op":"take","policy":"api","identifier":"a","idempotency_key":""}`,
				`{"op":"take","policy":"api","identifier":"a","idempotency_key":"é"}`,
				`{"op":"check","policy":"api","identifier":"a","idempotency_key":"a"}`,
				`{"op":"take","policy":"api","identifier":"a","reserve_ms":1000}`,
				`{"op":"take","policy":"api","identifier":"a","reservation":"a"}`,
				`{"op":"record","policy":"api","identifier":"a","reservation":"a"}`,
				oneOp,
			)},
			{path: "/v1/batch", body: `{}`},
			{path: "/v1/batch", body: `{"operations":[]}`},
			{path: "/v1/batch", body: `{"operations":{}}`},
			{path: "/v1/batch", body: `{"operations":[` + oneOp + `],"more":1}`},
			{path: "/v1/batch", body: `[` + oneOp + `]`},
			{path: "/v1/batch", body: `{"operations":[` + oneOp + `,]}`},
		},
	} {
		eitherWay(t, func(t *testing.T, f *front) { f.story(name, steps) }, smsSend, tail, closed, shadow, off)
	}
}

// eitherWay runs test twice: operations are decided in turn, and in lanes.
func eitherWay(t *testing.T, test func(t *testing.T, f *front), policies ...policy.Policy) {
	t.Helper()
	for way, inMemory := range map[string]bool{"in turn": true, "in lanes": false} {
		t.Run(way, func(t *testing.T) {
			f := newFront(t, nil, policies...)
			f.server.inMemory = inMemory
			test(t, f)
		})
	}
}

func operationsOf(ops ...string) string { return `{"operations":[` + strings.Join(ops, ",") + `]}` }

// resultBody is a result as clients read it.
type resultBody struct {
	Status   int
	Used     int64
	Field    string
	Detail   string
	Recorded string
}

func resultsOf(t *testing.T, res *http.Response) []resultBody {
	t.Helper()
	var body struct{ Results []resultBody }
	if err := json.Unmarshal([]byte(bodyOf(t, res)), &body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%d, %v", res.StatusCode, err)
	}
	return body.Results
}

// TestBatchBounds holds the maximum of operations and bytes.
func TestBatchBounds(t *testing.T) {
	f := newFront(t, nil, tail)
	ops := make([]string, maxOperations)
	for i := range ops {
		ops[i] = fmt.Sprintf(`{"op":"take","policy":"api","identifier":"%d","cost":%d}`, i, i%9+1)
	}
	for i, r := range resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(ops...))) {
		if r.Status != http.StatusOK || r.Used != int64(i%9+1) {
			t.Fatalf("operation %d: %+v", i, r)
		}
	}
	p := readProblem(t, f.do(http.MethodPost, "/v1/batch", operationsOf(append(ops, oneOp)...)))
	if p.Status != http.StatusBadRequest || p.Field != "operations" || !strings.Contains(p.Detail, "1 to 1000 operations, and 1001 are here") {
		t.Errorf("%+v", p)
	}
	body := operationsOf(oneOp)
	full := body + strings.Repeat(" ", maxBatchLen-len(body))
	if got := resultsOf(t, f.do(http.MethodPost, "/v1/batch", full)); len(got) != 1 {
		t.Errorf("%d results", len(got))
	}
	if p := readProblem(t, f.do(http.MethodPost, "/v1/batch", full+" ")); p.Status != http.StatusRequestEntityTooLarge ||
		!strings.Contains(p.Detail, "1048576") {
		t.Errorf("%+v", p)
	}
}

// TestBatchIsInOrder holds that operations of one identifier are decided in their order, however long each takes.
func TestBatchIsInOrder(t *testing.T) {
	eitherWay(t, func(t *testing.T, f *front) {
		f.store.before = func() {
			for range rand.N(20) {
				runtime.Gosched()
			}
		}
		ops := make([]string, 500)
		for i := range ops {
			ops[i] = fmt.Sprintf(`{"op":"take","policy":"api","identifier":"%d"}`, i%5)
		}
		for i, r := range resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(ops...))) {
			if r.Status != http.StatusOK || r.Used != int64(i/5+1) {
				t.Fatalf("operation %d: %+v", i, r)
			}
		}
	}, tail, signup)
}

// TestBatchOfOneKey holds that equal operations wait for the store together, and have the answers of operations in
// order.
func TestBatchOfOneKey(t *testing.T) { synctest.Test(t, batchOfOneKey) }

func batchOfOneKey(t *testing.T) {
	store := &counting{Store: embedded.New(nil)}
	perHour := policy.Policy{Name: "sms-send", Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 3, Window: time.Hour}}}
	f := newFront(t, nil, perHour)
	f.server.engine = engineOver(t, f, store, perHour)
	f.server.inMemory = false
	take, check, twice := oneTake, strings.Replace(oneTake, "take", "check", 1), strings.Replace(oneTake, "}", `,"cost":2}`, 1)
	ops := append(slices.Repeat([]string{take}, 40), check, twice, take)
	results := resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(ops...)))
	for i, r := range results {
		want := resultBody{Status: http.StatusTooManyRequests, Used: 3}
		if i < 3 {
			want = resultBody{Status: http.StatusOK, Used: int64(i + 1)}
		}
		if r.Status != want.Status || r.Used != want.Used {
			t.Errorf("operation %d: %+v, want %+v", i, r, want)
		}
	}
	store.writes.Store(0)
	record := strings.Replace(oneTake, "take", "record", 1)
	for i, r := range resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(slices.Repeat([]string{record}, 40)...))) {
		if r.Status != http.StatusOK || r.Used != int64(i+4) {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if n := store.writes.Load(); n != 2 { // the first, then all that waited
		t.Errorf("%d writes for 40 records", n)
	}
}

// counting is a slow store that can't lock keys, and counts writes.
type counting struct {
	store.Store
	writes atomic.Int64
}

func (c *counting) Write(ctx context.Context, w *store.Write) error {
	c.writes.Add(1)
	time.Sleep(time.Millisecond) // until all others wait, in a bubble
	return c.Store.Write(ctx, w)
}

func (c *counting) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, c, w, wrote)
}

func (c *counting) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, c, w, q)
}

func engineOver(t *testing.T, f *front, store store.Store, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{Now: f.now, StoreTimeout: 10 * time.Second})
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	return e
}

const oneTake = `{"op":"take","policy":"sms-send","identifier":"+4915112345678"}`

// TestAnswersAlikeAreInOrder holds that answers of admitted calls come first.
func TestAnswersAlikeAreInOrder(t *testing.T) {
	of := func(allowed bool, used int64) (d encode.Decided) {
		d.Allowed, d.Used = allowed, used
		return d
	}
	answers := []encode.Decided{of(false, 3), of(true, 3), of(false, 2), of(true, 1), of(true, 2)}
	slices.SortStableFunc(answers, before)
	var used []int64
	for _, d := range answers {
		used = append(used, d.Used)
	}
	if !slices.Equal(used, []int64{1, 2, 3, 2, 3}) || !answers[2].Allowed || answers[3].Allowed {
		t.Errorf("%v", used)
	}
}

// TestAlike holds which operations can be decided at the same time.
func TestAlike(t *testing.T) {
	for body, want := range map[string]int{
		oneTake + "," + oneTake + "," + oneTake:                                           3,
		oneTake + "," + strings.Replace(oneTake, "take", "record", 1):                     1,
		oneTake + "," + strings.Replace(oneTake, "}", `,"cost":2}`, 1):                    1,
		oneTake + "," + strings.Replace(oneTake, "}", `,"idempotency_key":"k"}`, 1):       1,
		strings.Replace(oneTake, "}", `,"idempotency_key":"k"}`, 1) + "," + oneTake:       1,
		strings.Repeat(oneTake+",", maxAlike) + oneTake:                                   maxAlike,
		oneTake + "," + oneTake + "," + strings.Replace(oneTake, "sms-send", "signup", 1): 2,
	} {
		ops := operationsIn(t, operationsOf(body))
		lane := make([]int, len(ops))
		for i := range lane {
			lane[i] = i
		}
		if got := alike(ops, lane); got != want {
			t.Errorf("%d of %s, want %d", got, body, want)
		}
	}
}

func operationsIn(t *testing.T, body string) []operation {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/batch", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	in, err := decodeBatch(r, &scratch{caller: anybody()})
	if err != nil {
		t.Fatal(err)
	}
	return in.ops
}

// TestLanes holds that operations that share anything, directly or through others, are in one lane.
func TestLanes(t *testing.T) {
	read := func(body string) operation {
		var o operation
		o.readFrom(decode.Value(body), anybody())
		return o
	}
	ops := []operation{
		read(`{"op":"take","policy":"p","identifier":"a"}`),                                                        // 0
		read(`{"op":"take","policy":"p","identifier":"b"}`),                                                        // 1
		read(`{"op":"take","policy":"q","identifier":"a"}`),                                                        // 2
		read(`{"op":"take","demands":[{"policy":"p","identifier":"b"},{"policy":"p","identifier":"c"}]}`),          // 3
		read(`{"op":"take","policy":"p","identifier":1}`),                                                          // 4: wrong
		read(`{"op":"take","policy":"p","identifier":"a"}`),                                                        // 5
		read(`{"op":"take","policy":"r","identifier":"x","idempotency_key":"k"}`),                                  // 6
		read(`{"op":"take","policy":"r","identifier":"y","idempotency_key":"k"}`),                                  // 7
		read(`{"op":"take","demands":[{"policy":"p","identifier":"c"},{"policy":"r","identifier":"y"}],"cost":1}`), // 8: wrong
		read(`{"op":"check","demands":[{"policy":"p","identifier":"c"},{"policy":"q","identifier":"a"}]}`),         // 9
		read(`{"op":"take","policy":"","identifier":"k"}`),                                                         // 10: the engine refuses it
		read(`{"op":"take","demands":[{"policy":"s","identifier":"1"},{"policy":"r","identifier":"y"}]}`),          // 11
		read(`{"op":"record","demands":[{"policy":"s","identifier":"2"}]}`),                                        // 12
		read(`{"op":"record","demands":[{"policy":"s","identifier":"2"},{"policy":"s","identifier":"1"}]}`),        // 13
	}
	want := [][]int{{0, 5}, {1, 2, 3, 9}, {6, 7, 10, 11, 12, 13}}
	if got := lanesOf(ops, asGiven); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestBatchesForgetEachOther holds that a batch has nothing of earlier ones, whose memory it reuses.
func TestBatchesForgetEachOther(t *testing.T) {
	eitherWay(t, func(t *testing.T, f *front) {
		mistakes := []string{
			`{"op":"refund"}`,
			`{"op":"check","policy":"api","identifier":"held","reserve_ms":1000,"cost":7}`,
			`{"op":"take","policy":"api","identifier":"other","cost":9,"idempotency_key":"k"}`,
			`{"op":"take","demands":[` + oneTail + `,{"policy":"sms-send","identifier":"a"}]}`,
		}
		for n := range 5 { // one of them at least borrows what the last one had
			f.do(http.MethodPost, "/v1/batch", operationsOf(mistakes...))
			plain := fmt.Sprintf(`{"op":"take","policy":"api","identifier":"plain %d"}`, n)
			res := f.do(http.MethodPost, "/v1/batch", operationsOf(plain, plain, plain, plain))
			for i, r := range resultsOf(t, res) {
				if r != (resultBody{Status: http.StatusOK, Used: int64(i + 1)}) {
					t.Fatalf("operation %d: %+v", i, r)
				}
			}
		}
	}, tail, smsSend)
}

// TestBatchWithoutTime holds that operations that could not begin in time are answered.
func TestBatchWithoutTime(t *testing.T) {
	var asked atomic.Int64
	f := newFront(t, nil, tail)
	f.server.inMemory = false
	f.server.opts.Now = func() time.Time { // each look takes a second and a half
		return f.now().Add(time.Duration(asked.Add(1)) * 1500 * time.Millisecond)
	}
	var ops []string
	for i := range 4 { // none like another, which would begin with it
		ops = append(ops, fmt.Sprintf(`{"op":"take","policy":"api","identifier":"a","cost":%d}`, i+1))
	}
	results := resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(ops...)))
	for i, r := range results {
		if i < 2 && r.Status != http.StatusOK {
			t.Errorf("operation %d: %+v", i, r)
		}
		if i >= 2 && (r.Status != http.StatusServiceUnavailable || r.Recorded != "no" || !strings.Contains(r.Detail, "4 seconds")) {
			t.Errorf("operation %d: %+v", i, r)
		}
	}
}

// TestBatchOfAClientThatHangsUp holds that no operation begins after the client hung up.
func TestBatchOfAClientThatHangsUp(t *testing.T) {
	eitherWay(t, func(t *testing.T, f *front) {
		var status int
		f.server.opts.Observe = func(_ string, s int, _ time.Duration, _ string) { status = s }
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, accept := range []string{"", mediaLines} {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/batch", strings.NewReader(operationsOf(oneOp, oneOp)))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", accept)
			f.server.ServeHTTP(httptest.NewRecorder(), r)
			if status != encode.StatusClientGone || f.store.Len() != 0 || strings.Contains(f.log.String(), "WARN") {
				t.Errorf("who accepts %q: %d, %d keys, %s", accept, status, f.store.Len(), f.log)
			}
		}
	}, tail)
}

// TestBatchFailuresAreLogged holds that there is one warning about operations that failed because of the store.
func TestBatchFailuresAreLogged(t *testing.T) {
	eitherWay(t, func(t *testing.T, f *front) {
		f.do(http.MethodPost, "/v1/batch", operationsOf(`{"op":"take","policy":"closed","identifier":"a"}`, `{"op":"take"}`))
		if log := f.log.String(); !strings.Contains(log, "level=DEBUG") || strings.Contains(log, "error=") {
			t.Errorf("mistakes and denials are logged as failures: %s", log)
		}
		f.store.err = errStoreDown
		for i, r := range resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(oneOp, `{"op":"take"}`, oneOp))) {
			want := resultBody{Status: http.StatusServiceUnavailable, Recorded: "unknown", Detail: r.Detail}
			if i == 1 {
				want = resultBody{Status: http.StatusBadRequest, Field: "operations[1].policy", Detail: "policy is missing."}
			}
			if r.Recorded == "no" {
				r.Recorded = "unknown" // as far as this is about
			}
			if r != want {
				t.Errorf("operation %d: %+v, want %+v", i, r, want)
			}
		}
		if log := f.log.String(); strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "no host answers") {
			t.Errorf("%s", log)
		}
	}, tail, closed)
}

// TestBatchSaysWhatFailuresLeaveBehind holds that an operation reports the same recorded units as the call alone.
func TestBatchSaysWhatFailuresLeaveBehind(t *testing.T) {
	eitherWay(t, func(t *testing.T, f *front) {
		f.store.err = errStoreDown
		check := strings.Replace(oneOp, `"take"`, `"check"`, 1)
		for i, r := range resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(check, oneOp))) {
			path := []string{"/v1/check", "/v1/take"}[i]
			alone := readProblem(t, f.do(http.MethodPost, path, oneTail))
			if r.Recorded == "" || r.Recorded != alone.Recorded || r.Status != alone.Status {
				t.Errorf("%s: %+v, want %d, Recorded: %s", path, r, alone.Status, alone.Recorded)
			}
		}
	}, tail)
}

// TestBatchPanics holds that a panic, here in the store, fails its operation only.
func TestBatchPanics(t *testing.T) {
	eitherWay(t, func(t *testing.T, f *front) {
		var asked atomic.Int64
		f.store.before = func() {
			if asked.Add(1) == 1 {
				panic("a store that breaks")
			}
		}
		results := resultsOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(oneOp, `{"op":"take"}`, oneOp)))
		if results[2].Status == http.StatusInternalServerError { // those in lanes are decided at the same time
			results[0], results[2] = results[2], results[0]
		}
		if results[0].Status != http.StatusInternalServerError || results[0].Recorded != "unknown" ||
			results[1].Status != http.StatusBadRequest || results[2].Status != http.StatusOK || results[2].Used != 1 {
			t.Errorf("%+v", results)
		}
		if log := f.log.String(); !strings.Contains(log, "panic in an operation") || strings.Contains(log, "49151") {
			t.Errorf("%s", log)
		}
	}, tail)
}

// BenchmarkBatch measures batches of different identifiers.
func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{100, maxOperations} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			f := newFront(&testing.T{}, nil, policy.Policy{Name: "api", Limits: []policy.Limit{
				{Algorithm: "sliding-tail", Limit: policy.MaxLimit, Window: time.Minute},
			}})
			ops := make([]string, size)
			for i := range ops {
				ops[i] = fmt.Sprintf(`{"op":"take","policy":"api","identifier":"+49151%08d"}`, i)
			}
			f.benchmark(b, "/v1/batch", operationsOf(ops...))
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*size), "ns/decision")
		})
	}
}
