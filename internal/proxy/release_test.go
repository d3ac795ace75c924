package proxy_test

import (
	"io"
	"net/http"
	"testing"
)

// TestConcurrentUnitsAreReleased holds that a request has its concurrent unit until its answer was passed on, also if
// the application breaks off, or if another limit denies the request. Other counts stay.
func TestConcurrentUnitsAreReleased(t *testing.T) {
	const routes = `
- {path: /denied, limits: [{policy: slots}, {policy: other, count: served}]}
- {path: /, limits: [{policy: slots}, {policy: objects}]}
`
	begun, end := make(chan struct{}), make(chan struct{})
	f := newFront(t, routes, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/stream":
			_, _ = io.WriteString(w, "a part")
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-end
		case "/cut":
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "a part")
			panic(http.ErrAbortHandler)
		}
	})
	res, err := http.Get(f.url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	f.mustBe(429, "GET", "/", "")
	close(end)
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Error(err)
	}
	_ = res.Body.Close()
	f.wait()
	f.mustBe(200, "GET", "/", "")
	if cut, err := http.Get(f.url + "/cut"); err == nil {
		_, _ = io.ReadAll(cut.Body)
		_ = cut.Body.Close()
	}
	f.wait()
	f.mustHaveUsed(0, "slots", here)
	f.mustHaveUsed(3, "objects", here)
	for _, status := range []int{200, 200, 429, 429} {
		f.mustBe(status, "GET", "/denied", "")
		f.mustHaveUsed(0, "slots", here)
	}
}
