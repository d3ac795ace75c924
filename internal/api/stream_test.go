package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// shared makes f decide as over a store that instances share.
func (f *front) shared() *front {
	f.server.inMemory = false
	return f
}

// withoutRandom returns member without its random parts.
func withoutRandom(member map[string]any) map[string]any {
	delete(member, "receipt")
	delete(member, "reservation")
	return member
}

// linesOf returns the lines of res, by their index.
func linesOf(t *testing.T, res *http.Response) map[int]map[string]any {
	t.Helper()
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != mediaLines {
		t.Fatalf("%d %s", res.StatusCode, got)
	}
	lines := make(map[int]map[string]any)
	for line := range strings.Lines(bodyOf(t, res)) {
		var members map[string]any
		if err := json.Unmarshal([]byte(line), &members); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("%q: %v", line, err)
		}
		index := int(members["index"].(float64))
		if lines[index] != nil {
			t.Errorf("%d is there twice", index)
		}
		delete(members, "index")
		lines[index] = withoutRandom(members)
	}
	return lines
}

// Lines have the same results as a batch.
func TestLinesAreResults(t *testing.T) {
	body := operationsOf(
		`{"op":"take","policy":"sms-send","identifier":"a","cost":2}`,
		`{"op":"take","policy":"sms-send","identifier":"a","cost":2}`,
		`{"op":"take","policy":"closed","identifier":"a"}`,
		`{"op":"take","policy":"nothing","identifier":"a"}`,
		`{"op":"take","policy":"sms-send","identifier":""}`,
		`{"op":"refund"}`,
		`{"op":"check","policy":"sms-send","identifier":"b","reserve_ms":2000}`,
		`{"op":"take","demands":[{"policy":"sms-send","identifier":"c"},{"policy":"shadow","identifier":"c"}]}`,
		`{"op":"take","policy":"sms-send","identifier":"d","idempotency_key":"1"}`,
		`{"op":"take","policy":"sms-send","identifier":"d","idempotency_key":"1"}`,
	)
	var whole struct{ Results []map[string]any }
	f := newFront(t, nil, smsSend, closed, shadow).shared()
	if err := json.Unmarshal([]byte(bodyOf(t, f.do(http.MethodPost, "/v1/batch", body))), &whole); err != nil {
		t.Fatal(err)
	}
	f = newFront(t, nil, smsSend, closed, shadow).shared()
	lines := linesOf(t, f.do(http.MethodPost, "/v1/batch", body, "Accept", mediaLines))
	if len(lines) != len(whole.Results) || len(lines) != 10 {
		t.Fatalf("%d lines, %d results", len(lines), len(whole.Results))
	}
	for i, want := range whole.Results {
		if want = withoutRandom(want); !reflect.DeepEqual(lines[i], want) {
			t.Errorf("line %d is\n%v, the result\n%v", i, lines[i], want)
		}
	}
}

// TestWhoGetsLines holds that a batch that needs no lines, and a mistake of the whole batch, are answered as a whole,
// although the client accepts lines.
func TestWhoGetsLines(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                       "application/json",
		"application/json":                       "application/json",
		"*/*":                                    "application/json",
		"application/x-ndjson":                   mediaLines,
		"application/json, application/x-ndjson": mediaLines,
		"Application/X-NDJSON; q=0.5, text/html": mediaLines,
		"application/x-ndjson;q=0, text/html":    "application/json",
		"application/x-ndjson-other":             "application/json",
		"text/plain; about=\"application/x-ndjson\"": "application/json",
	} {
		f := newFront(t, nil, smsSend)
		given := func() string {
			return f.do(http.MethodPost, "/v1/batch", operationsOf(oneOp), "Accept", accept).Header.Get("Content-Type")
		}
		if got := given(); got != "application/json" {
			t.Errorf("in memory, who accepts %q gets %s", accept, got)
		}
		f.shared()
		if got := given(); got != want {
			t.Errorf("who accepts %q gets %s", accept, got)
		}
		res := f.do(http.MethodPost, "/v1/batch", operationsOf(), "Accept", accept)
		if got := res.Header.Get("Content-Type"); got != "application/problem+json" || res.StatusCode != http.StatusBadRequest {
			t.Errorf("%d %s for an empty batch", res.StatusCode, got)
		}
	}
}

// logsWait is a store that decides about logs when it is told to.
type logsWait struct {
	*embedded.Store
	goOn chan struct{}
}

func (s *logsWait) Update(ctx context.Context, q *store.Query, decide func(*store.State, *store.Write)) error {
	if len(q.Logs) > 0 {
		<-s.goOn
	}
	return s.Store.Update(ctx, q, decide)
}

// A line comes as soon as its operation is decided, whatever others wait for.
func TestLinesComeAsTheyAreDecided(t *testing.T) {
	f := newFront(t, nil)
	store := &logsWait{embedded.New(nil), make(chan struct{})}
	f.server = New(engineOver(t, f, store, smsSend, closed), nil)
	server := httptest.NewServer(f.shared().server)
	t.Cleanup(server.Close)
	body := operationsOf(
		`{"op":"take","policy":"sms-send","identifier":"a"}`,
		`{"op":"take","policy":"closed","identifier":"a"}`,
		`{"op":"take","policy":"sms-send","identifier":"b"}`,
		`{"op":"take","policy":"closed","identifier":"a"}`,
		`{"op":"give"}`,
	)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/batch", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Accept"], r.Header["Content-Type"] = contentTypeLines, encode.ContentTypeJSON
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	from := bufio.NewReader(res.Body)
	next := func() (line struct{ Index, Status int }) {
		text, err := from.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(text, &line)
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return line
	}
	early := map[int]int{}
	for range 3 {
		line := next()
		early[line.Index] = line.Status
	}
	if fmt.Sprint(early) != "map[1:429 3:429 4:400]" {
		t.Errorf("before the logs are decided: %v", early)
	}
	for range 2 {
		store.goOn <- struct{}{}
		if line := next(); line.Index%2 != 0 || line.Status != http.StatusOK {
			t.Errorf("%+v", line)
		}
	}
	if rest, err := io.ReadAll(from); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// A failure in a line is logged as in a batch that is answered as a whole.
func TestFailuresInLinesAreLogged(t *testing.T) {
	f := newFront(t, nil, tail).shared()
	f.store.err = errStoreDown
	lines := linesOf(t, f.do(http.MethodPost, "/v1/batch", operationsOf(oneOp, `{"op":"take"}`), "Accept", mediaLines))
	if lines[0]["status"] != 503.0 || lines[1]["status"] != 400.0 || lines[1]["field"] != "operations[1].policy" {
		t.Errorf("%v", lines)
	}
	if log := f.log.String(); strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, "no host answers") {
		t.Errorf("%s", log)
	}
}

// broken is a response that panics when something is written.
type broken struct{ http.ResponseWriter }

func (broken) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

// A panic while lines are sent waits for operations under way, because the next request gets their memory.
func TestPanicBetweenLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFront(t, nil)
		store := &logsWait{embedded.New(nil), make(chan struct{})}
		f.server = New(engineOver(t, f, store, smsSend, closed), nil)
		f.shared()
		r := post("/v1/batch", []byte(operationsOf(
			`{"op":"take","policy":"sms-send","identifier":"a"}`, `{"op":"take","policy":"closed","identifier":"a"}`,
		)))
		r.Header["Accept"] = contentTypeLines
		ended := make(chan any)
		go func() {
			defer func() { ended <- recover() }()
			f.server.ServeHTTP(broken{httptest.NewRecorder()}, r)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("it has ended, and an operation is under way")
		default:
		}
		close(store.goOn)
		if cause := <-ended; cause != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
			t.Errorf("%v", cause)
		}
	})
}
