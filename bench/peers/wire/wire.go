// Package wire is the API that the peers share with ratelimitd: POST /v1/take with the same body, and those parts of the
// answer that they know. It does not know the peers.
package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
)

// Request is the body of a take.
type Request struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier"`
	Cost       int64  `json:"cost"`
}

// Answer is the decision.
type Answer struct {
	Allowed      bool   `json:"allowed"`
	Policy       string `json:"policy"`
	Limit        int64  `json:"limit"`
	Remaining    int64  `json:"remaining"`
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// ErrUnknownPolicy is answered with status 404.
var ErrUnknownPolicy = errors.New("unknown policy")

// Decider decides on a request.
type Decider func(context.Context, Request) (Answer, error)

const (
	maxBody       = 64 << 10 // the same as ratelimitd's
	readHeader    = 10 * time.Second
	shutdownAfter = 5 * time.Second
)

// Handler answers POST /v1/take with the decision of decide; a denial has the status 429.
func Handler(decide Decider) http.Handler {
	router := chi.NewRouter()
	router.Post("/v1/take", func(w http.ResponseWriter, r *http.Request) {
		var request Request
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request.Cost = max(request.Cost, 1)
		answer, err := decide(r.Context(), request)
		if err != nil {
			fail(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !answer.Allowed {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_ = json.NewEncoder(w).Encode(answer) // the caller may be gone
	})
	return router
}

func fail(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrUnknownPolicy) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// Serve listens on a free port of 127.0.0.1, prints it as ratelimitd does, and serves until SIGTERM or SIGINT.
func Serve(handler http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s\n", listener.Addr())
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeader}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), shutdownAfter)
	defer cancel()
	return server.Shutdown(last)
}
