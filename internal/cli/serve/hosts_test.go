package serve_test

import (
	"net/http"
	"testing"
)

// TestStrangeHosts sends requests to a server under names that are its own, and others.
func TestStrangeHosts(t *testing.T) {
	s := start(t, nil, "--allowed-hosts=limits.example.org")
	for host, want := range map[string]int{"": 200, "localhost:1": 200, "limits.example.org": 200, "evil.example": 403} {
		r, err := http.NewRequest(http.MethodGet, s.URL+"/v1/overrides", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host // empty: the address
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, resp.StatusCode, want)
		}
	}
	s.Log.WaitFor(t, "not among --allowed-hosts", 1)
}
