package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/peers/wire"
	"github.com/ratelimitd/ratelimitd/bench/policy"
)

// The peers have the same HTTP, and this one can be tested without Redis.
func TestTakesUntilDenied(t *testing.T) {
	decide, err := decider(policy.List{{Name: "api", Limit: 3, Window: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	handler := wire.Handler(decide)
	for _, test := range []struct {
		body              string
		status, remaining int
	}{
		{`{"policy":"api","identifier":"a","cost":1}`, 200, 2},
		{`{"policy":"api","identifier":"a","cost":2}`, 200, 0},
		{`{"policy":"api","identifier":"a"}`, 429, 0},
		{`{"policy":"api","identifier":"b"}`, 200, 2},
		{`{"policy":"other","identifier":"b"}`, 404, 0},
		{`{"policy":`, 400, 0},
	} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(test.body)))
		var answer wire.Answer
		_ = json.Unmarshal(recorder.Body.Bytes(), &answer) // problems are plain text
		if recorder.Code != test.status || answer.Remaining != int64(test.remaining) || answer.Allowed != (test.status == 200) {
			t.Errorf("%s: %d %s, want %d and %d remaining", test.body, recorder.Code, recorder.Body, test.status, test.remaining)
		}
		if waits := answer.RetryAfterMS > 0; waits != (test.status == 429) {
			t.Errorf("%s: retry after %d ms", test.body, answer.RetryAfterMS)
		}
	}
}
