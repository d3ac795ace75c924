package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// begin of the example

// remainingView is the answer of remaining.
type remainingView struct {
	Remaining int64 `json:"remaining"`
}

// decodeRemaining reads {"policy", "identifier"}.
func decodeRemaining(r *http.Request, m *scratch) (limiter.Demand, error) { return m.readKey(r) }

// remaining returns how many units an identifier has left.
func (s *Server) remaining(ctx context.Context, d limiter.Demand) (answer, error) {
	decision, err := s.engine.Check(ctx, d)
	if err != nil {
		return nil, &decode.CallError{Recorded: count.RecordedNo, Err: err}
	}
	return encode.Document{Content: remainingView{decision.Remaining}}, nil
}

// end of the example

// An endpoint is what a file has between the comments, and this line for its route.
func Example_endpoint() {
	engine := limiter.New(embedded.New(nil), nil)
	_ = engine.SetPolicies([]policy.Policy{{Name: "api", Limits: []policy.Limit{
		{Algorithm: "fixed-window", Limit: 3, Window: time.Minute},
	}}})
	s := New(engine, nil)
	s.mux.Post("/v1/remaining", handle(s, auth.Decide, decodeRemaining, s.remaining))

	for _, body := range []string{`{"policy":"api","identifier":"a"}`, `{"policy":"api"}`} {
		r := httptest.NewRequest(http.MethodPost, "/v1/remaining", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	// Output:
	// 200 {"remaining":3}
	// 400 {"type":"about:blank","title":"Bad Request","status":400,"detail":"identifier is missing.","field":"identifier"}
}

// TestContributingShowsTheExample checks that CONTRIBUTING.md shows the code that is compiled here.
func TestContributingShowsTheExample(t *testing.T) {
	code, codeErr := os.ReadFile("endpoint_example_test.go")
	page, pageErr := os.ReadFile("../../CONTRIBUTING.md")
	if codeErr != nil || pageErr != nil {
		t.Fatal(codeErr, pageErr)
	}
	_, example, _ := strings.Cut(string(code), "\n// begin of the example\n\n")
	example, _, _ = strings.Cut(example, "\n// end of the example\n")
	if !strings.Contains(string(page), "```go\n"+example+"```\n") {
		t.Errorf("CONTRIBUTING.md does not show\n%s", example)
	}
}
