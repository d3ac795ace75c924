package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

// newMux serves the shop with only net/http.
func newMux(limit *httplimit.Limiter) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", limit.All(anything)(answer("well")))
	mux.Handle("GET /balance", limit.All(anything)(answer("balance")))
	mux.Handle("POST /withdraw", limit.All(anything, withdraws)(answer("withdrawn"))) // both in one call
	mux.Handle("POST /login", limit.All(logins)(answer("welcome")))
	mux.Handle("GET /export", limit.All(anything, exports)(answer(strings.Repeat("x", exportLen))))
	return mux
}

func answer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}
