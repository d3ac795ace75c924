package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// contract is the served document as kin-openapi reads it; its 3.1 schemas are
// validated as JSON Schema 2020-12.
var contract = sync.OnceValues(func() (routers.Router, error) {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		return nil, err
	}
	return legacy.NewRouter(doc, openapi3.EnableExamplesValidation())
})

// documented has answers that were checked against the document, each with its route. kin-openapi compiles a schema for
// each answer, and most answers in a fuzz test are equal.
var documented answers

// answers is a set of at most 1,000 answers. The zero value is empty.
type answers struct {
	mu  sync.Mutex
	all map[string]bool
}

func (a *answers) has(answer string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[answer]
}

func (a *answers) add(answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.all)%1000 == 0 {
		a.all = make(map[string]bool)
	}
	a.all[answer] = true
}

// checkContract fails t if an answer is not as in the document, or if the server served a request that the document
// does not allow.
func checkContract(t *testing.T, r *http.Request, body string, w *httptest.ResponseRecorder) {
	t.Helper()
	router, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	asked := r.Clone(context.Background())
	if r.Method == http.MethodHead {
		asked.Method = http.MethodGet
	}
	asked.Body = io.NopCloser(strings.NewReader(body))
	route, params, err := router.FindRoute(asked)
	if err != nil || strings.HasSuffix(r.URL.Path, "/") { // which kin-openapi takes for the path without
		if w.Code < http.StatusBadRequest {
			t.Errorf("%s %s is served and not in the document: %v", r.Method, r.URL.Path, err)
		}
		return
	}
	isLines := w.Header().Get("Content-Type") == mediaLines
	isText := isLines || !strings.Contains(w.Header().Get("Content-Type"), "json")
	in := &openapi3filter.RequestValidationInput{Request: asked, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}} // TestScopes has what it should be
	if served(w.Code) && !isLines && allServed(t, w) {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			t.Errorf("%s %s is served, and its request is not as the document says: %v", r.Method, r.URL.Path, err)
		}
	}
	answer := fmt.Sprint(r.Method, " ", route.Path, " ", w.Code, w.Header(), w.Body)
	if documented.has(answer) {
		return
	}
	err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(strings.NewReader(w.Body.String())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: isText || r.Method == http.MethodHead},
	})
	if err != nil {
		t.Errorf("the answer to %s %s is not as the document says: %v\n%s", r.Method, r.URL.Path, err, w.Body)
	} else {
		documented.add(answer)
	}
	if isLines {
		checkContract(t, r, body, whole(w))
	}
}

// inLine has the members of a line beside its result.
var inLine = regexp.MustCompile(`(?m)^\{"index":\d+,`)

// whole returns an answer in lines in the form of a whole answer.
func whole(w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	all := httptest.NewRecorder()
	maps.Copy(all.Header(), w.Header())
	all.Header()["Content-Type"] = encode.ContentTypeJSON
	all.WriteHeader(w.Code)
	results := inLine.ReplaceAllString(strings.TrimSpace(w.Body.String()), "{")
	_, _ = io.WriteString(all, `{"results":[`+strings.ReplaceAll(results, "\n", ",")+"]}")
	return all
}

func served(status int) bool {
	return status < http.StatusBadRequest || status == http.StatusTooManyRequests
}

// allServed reports whether no part of an answer is a problem: a batch is served even if operations are wrong.
func allServed(t *testing.T, w *httptest.ResponseRecorder) bool {
	t.Helper()
	if !strings.HasPrefix(w.Body.String(), `{"results":`) {
		return true
	}
	var body struct{ Results []resultBody }
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Error(err)
	}
	return !slices.ContainsFunc(body.Results, func(r resultBody) bool { return !served(r.Status) })
}

// TestDocumentIsValid holds that the document and its examples are valid OpenAPI 3.1.
func TestDocumentIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
	if !doc.IsOpenAPI31OrLater() {
		t.Errorf("the document is OpenAPI %s", doc.OpenAPI)
	}
}

// TestDocumentListsEveryRoute compares the document with the router.
func TestDocumentListsEveryRoute(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	var documented, routed []string
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	f := newFront(t, &Options{Metrics: http.NotFoundHandler(), Overshoot: new(overshot).of, Shadow: noShadow, Policies: new(keeper)})
	err = chi.Walk(f.server.mux, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routed = append(routed, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if !slices.Equal(documented, routed) {
		t.Errorf("documented: %v\n    routed: %v", documented, routed)
	}
}

// TestContractCatchesMistakes holds that the validator finds mistakes: schemas of 3.1 can be skipped silently.
func TestContractCatchesMistakes(t *testing.T) {
	router, err := contract()
	if err != nil {
		t.Fatal(err)
	}
	good := strings.TrimSuffix(string(firstDecision(t)), "\n")
	for _, c := range []struct {
		name, body string
		valid      bool
	}{
		{"as served", good, true},
		{"a member more", strings.Replace(good, `{`, `{"more":1,`, 1), false},
		{"a member less", strings.Replace(good, `"mode":"enforce",`, "", 1), false},
		{"null for a wait that is known", strings.Replace(good, `"retry_after_ms":0`, `"retry_after_ms":null`, 1), true},
		{"a string for a number", strings.Replace(good, `"limit":3`, `"limit":"3"`, 1), false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/take", nil)
		route, params, err := router.FindRoute(r)
		if err != nil {
			t.Fatal(err)
		}
		err = openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
			Status:                 http.StatusOK,
			Header:                 http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"test"}},
			Body:                   io.NopCloser(strings.NewReader(c.body)),
		})
		if (err == nil) != c.valid {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func firstDecision(t *testing.T) []byte {
	t.Helper()
	f := newFront(t, nil, smsSend)
	return []byte(bodyOf(t, f.do(http.MethodPost, "/v1/take", `{"policy":"sms-send","identifier":"a"}`)))
}

// TestEveryErrorIsDocumented gets from every route with a body the errors that do not depend on its content.
// checkContract knows which are documented.
func TestEveryErrorIsDocumented(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/check": one, "/v1/record": one, "/v1/take": one, "/v1/reset": one, "/v1/explain": one,
		"/v1/overrides": blockOne, "/v1/overrides/get": one, "/v1/overrides/delete": one,
		"/v1/refund": `{"receipt":"a"}`, "/v1/confirm": `{"receipt":"a"}`, "/v1/batch": operationsOf(oneOp),
	} {
		f := newFront(t, nil, smsSend)
		for _, c := range []struct {
			method, body, kind string
			status             int
		}{
			{http.MethodDelete, "", "", http.StatusMethodNotAllowed},
			{http.MethodPost, body, "text/plain", http.StatusUnsupportedMediaType},
			{http.MethodPost, body[1:], "application/json", http.StatusBadRequest},
			{http.MethodPost, body + strings.Repeat(" ", maxBatchLen), "application/json", http.StatusRequestEntityTooLarge},
		} {
			if res := f.do(c.method, path, c.body, "Content-Type", c.kind); res.StatusCode != c.status {
				t.Errorf("%s %s: %d, want %d", c.method, path, res.StatusCode, c.status)
			}
		}
		want := http.StatusInternalServerError
		if path == "/v1/batch" {
			want = http.StatusOK // each operation fails on its own
		} else {
			f.server.engine = nil
		}
		if res := f.do(http.MethodPost, path, body); res.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, want)
		}
	}
}
