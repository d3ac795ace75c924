package main

import (
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

// newChi serves the shop with chi, whose middleware is net/http's.
func newChi(limit *httplimit.Limiter) http.Handler {
	r := chi.NewRouter()
	r.With(limit.All(logins)).Post("/login", answer("welcome"))
	r.Group(func(r chi.Router) {
		r.Use(limit.All(anything))
		r.Get("/healthz", answer("well"))
		r.Get("/balance", answer("balance"))
		r.With(limit.Policy("withdraw", httplimit.Cost(2))).Post("/withdraw", answer("withdrawn"))
		r.With(limit.All(exports)).Get("/export", answer(strings.Repeat("x", exportLen)))
	})
	return r
}
