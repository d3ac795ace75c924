package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
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
		httplimit.Use("login-ip"),
		httplimit.Use("login-user", httplimit.By(httplimit.User())),
	)(login))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
	fmt.Println(w.Code)
	// Output: 200
}
