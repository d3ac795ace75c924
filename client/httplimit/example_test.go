package httplimit_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/client/ratelimittest"
)

func Example() {
	limits, err := client.New("http://127.0.0.1:1", nil) // nobody is there: requests pass
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limits.Close()
	limit := httplimit.New(limits, &httplimit.Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	login := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })

	mux := http.NewServeMux()
	mux.Handle("POST /login", limit.All( // both, by one request to ratelimitd
		httplimit.Use("login-ip", httplimit.Cost(1)),
		httplimit.Use("login-user", httplimit.Cost(1), httplimit.By(httplimit.User())),
	)(login))

	fmt.Println(ask(mux, "POST", "/login", "203.0.113.7:4711").StatusCode)
	// Output: 200
}

// TestRoutesOfChi has a policy for some routes of a router.
func TestRoutesOfChi(t *testing.T) {
	s := ratelimittest.New(t, policies)
	limit := httplimit.New(s.Client(nil), nil)
	r := chi.NewRouter()
	r.With(limit.Policy("api", httplimit.Cost(2))).Post("/withdraw", ok)
	r.Post("/free", ok)
	for _, want := range []string{"200", "200", "429"} {
		mustBe(t, want+" 200", ask(r, "POST", "/withdraw", "203.0.113.7:1"), ask(r, "POST", "/free", "203.0.113.7:1"))
	}
}

// FuzzIP makes sure that no header makes an address that is trusted by nobody another's.
func FuzzIP(f *testing.F) {
	f.Add("203.0.113.7:1", "198.51.100.1, 10.0.0.1")
	f.Add("[::1%a]:1", ",,:")
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		with := &http.Request{RemoteAddr: remote, Header: http.Header{"X-Forwarded-For": {forwarded, forwarded}}}
		without := &http.Request{RemoteAddr: remote, Header: http.Header{}}
		if got, want := httplimit.IP()(with), httplimit.IP()(without); got != want {
			t.Errorf("%q becomes %q by a header that nobody vouches for", want, got)
		}
		httplimit.IP(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))(with) // does not panic
	})
}
