package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// FuzzDecodeReset holds that the decoder of resets reads what that of calls reads.
func FuzzDecodeReset(f *testing.F) {
	for _, seed := range []string{
		`{"policy":"p","identifier":"i"}`, `{"identifier":"i"}`, oneTail, `{"policy":"\u0070","identifier":""}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := decodeAdmin(post("/", body), &scratch{caller: anybody()})
		if err != nil {
			onlyMistakes(t, err)
			return
		}
		call, err := decodeCall(count.OpTake)(post("/", body), &scratch{caller: anybody()})
		if err != nil || got.Demand != call.asked.Demands[0] {
			t.Fatalf("%q: %+v, but a take of it: %v", body, got, err)
		}
	})
}

// FuzzRequests holds that no method, path or headers make the server fail, and that neither the log nor the headers of
// the answer quote them.
func FuzzRequests(f *testing.F) {
	f.Add("POST", "/v1/take", "application/json", "", "key-1", "id-1", oneTail)
	f.Add("POST", "/v1/take", `application/json; charset="UTF-8"`, "gzip", "", "", "\x1f\x8b")
	f.Add("POST", "/v1/batch", "application/json;", "", "k", strings.Repeat("a", 999), operationsOf(oneOp))
	f.Add("GET", "/v1/policies/%61pi?x=%zz", "text/plain", "", "", "+49", "")
	f.Add("GET", "/v1/policies/%2e%2e%2f", "", "identity", "\x00", "\r\nX: y", "")
	f.Add("HEAD", "//healthz", "", "", "", "", "")
	f.Add("MAKE", "*", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, method, path, contentType, encoding, key, id, body string) {
		r, err := http.NewRequest(method, "http://server"+path, strings.NewReader(body))
		if err != nil || r.URL.Host != "server" {
			return // net/http does not let it in
		}
		r.Header = http.Header{"Content-Type": {contentType}, "X-Request-Id": {id}}
		if encoding != "" {
			r.Header.Set("Content-Encoding", encoding)
		}
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		front := newFront(t, nil, tail)
		w := httptest.NewRecorder()
		front.server.ServeHTTP(w, r)
		if w.Code >= http.StatusInternalServerError || w.Code < http.StatusOK {
			t.Fatalf("%s %q: %d", method, path, w.Code)
		}
		if got := w.Header().Get("X-Request-Id"); !isRequestID(got) {
			t.Fatalf("the request has the id %q", got)
		}
		if strings.Count(front.log.String(), "\n") != 1 {
			t.Fatalf("the log has %q", front.log)
		}
		if w.Code == http.StatusOK && r.Method == http.MethodPost && !decode.IsJSON(r.Header) {
			t.Fatalf("a body of type %q in %q is taken", contentType, encoding)
		}
	})
}

// FuzzServe holds that no body makes a route fail, and that the answer is as in the document.
func FuzzServe(f *testing.F) {
	for _, seed := range []string{oneTail, `{"demands":[` + oneTail + `]}`, `{"policy":"api","identifier":"a","cost":1e3}`, `{`, `null`,
		`{"receipt":"b3BhcXVl"}`, `{"operations":[` + oneOp + `,{"op":"check","policy":"api","identifier":"a","reserve_ms":1000},1]}`,
		`{"policy":"api","identifier":"a","reserve_ms":1000}`, `{"policy":"api","identifier":"a","reservation":"b3BhcXVl"}`} {
		f.Add([]byte(seed))
	}
	var shared *front
	f.Fuzz(func(t *testing.T, body []byte) {
		if shared == nil { // one takes far longer to make than to ask
			shared = newFront(t, nil, tail)
		}
		shared.t = t
		for _, path := range []string{"/v1/check", "/v1/record", "/v1/take", "/v1/reset", "/v1/refund", "/v1/batch"} {
			if res := shared.do("POST", path, string(body)); res.StatusCode >= 500 {
				t.Fatalf("%s %q: %d", path, body, res.StatusCode)
			}
		}
	})
}
