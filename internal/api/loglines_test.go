package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestStrangersFillNoLog holds that each mistake of strangers has one log line a second, with the number of lines left
// out.
func TestStrangersFillNoLog(t *testing.T) {
	const times = 100
	closed := &Options{Keyring: keyring(t, "recorder scopes: [record]")}
	large := `{"identifier":"` + strings.Repeat("a", 80<<10) + `"}`
	for _, c := range []struct {
		opts               *Options
		method, path, body string
		headers            []string
		status             int
	}{
		{closed, http.MethodPost, "/v1/take", one, nil, http.StatusUnauthorized},
		{closed, http.MethodPost, "/v1/take", one, bearer("other"), http.StatusUnauthorized},
		{closed, http.MethodPost, "/v1/take", one, bearer("recorder"), http.StatusForbidden},
		{&Options{}, http.MethodPost, "/v1/take", "{", nil, http.StatusBadRequest},
		{&Options{}, http.MethodGet, "/nowhere", "", nil, http.StatusNotFound},
		{&Options{}, http.MethodPut, "/v1/take", "", nil, http.StatusMethodNotAllowed},
		{&Options{}, http.MethodPost, "/v1/take", large, nil, http.StatusRequestEntityTooLarge},
	} {
		f := newFront(t, c.opts, smsSend)
		ask := func() {
			if res := f.do(c.method, c.path, c.body, c.headers...); res.StatusCode != c.status {
				t.Fatalf("%s %s is %d, want %d", c.method, c.path, res.StatusCode, c.status)
			}
		}
		for range times {
			ask()
		}
		f.set(f.now().Add(time.Second))
		ask()
		if n, log := strings.Count(f.log.String(), "level=INFO"), f.log.String(); n != 2 ||
			!strings.Contains(log, fmt.Sprintf("unlogged=%d", times-1)) {
			t.Errorf("%d: %d lines, want one each second, and the second one with unlogged=%d", c.status, n, times-1)
		}
	}
}
