// Package ratelimittest runs a ratelimitd within a test: the real service, over HTTP, with its
// counts in memory and a clock that the test turns.
//
// It brings the server's packages along, which package client does not: import it in tests
// only.
package ratelimittest

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// patience is far longer than any step takes, so that no test fails on a busy machine: the store timeout, and the time
// of a call unless Options say otherwise.
const patience = time.Minute

// Server is a ratelimitd of one test. Make one with New.
type Server struct {
	URL string

	tb    testing.TB
	ahead atomic.Int64              // of time.Now, in nanoseconds
	at    atomic.Pointer[time.Time] // the clock stands there; nil: it goes
	gone  atomic.Bool
}

// New serves policies, the text of a policies file, until the test ends. It fails the test if
// there is a mistake in them.
func New(tb testing.TB, policies string) *Server {
	tb.Helper()
	parsed, err := policyfile.Parse("policies.yaml", []byte(policies))
	if err != nil {
		tb.Fatalf("ratelimittest: %v", err)
	}
	s := &Server{tb: tb}
	engine := limiter.New(embedded.New(&embedded.Options{Now: s.now}),
		&limiter.Options{Now: s.now, StoreTimeout: patience, Identifiers: identifier.Reader})
	if err := engine.SetPolicies(parsed); err != nil {
		tb.Fatalf("ratelimittest: %v", err)
	}
	served := api.New(engine, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.gone.Load() {
			panic(http.ErrAbortHandler) // cuts the connection
		}
		served.ServeHTTP(w, r)
	}))
	tb.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

func (s *Server) now() time.Time {
	now := time.Now()
	if at := s.at.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(s.ahead.Load()))
}

// Client returns a client of s, which is closed when the test ends. A nil opts means the zero
// Options, but for a Timeout that no busy machine exceeds.
func (s *Server) Client(opts *client.Options) *client.Client {
	s.tb.Helper()
	o := client.Options{}
	if opts != nil {
		o = *opts
	}
	o.Timeout = cmp.Or(o.Timeout, patience)
	c, err := client.New(s.URL, &o)
	if err != nil {
		s.tb.Fatalf("ratelimittest: %v", err)
	}
	s.tb.Cleanup(func() { _ = c.Close() }) // it never fails
	return c
}

// Advance turns the clock of s by d, which is not negative: windows end, blocks and holds do.
// No time passes for the client.
func (s *Server) Advance(d time.Duration) {
	if d > 0 {
		s.ahead.Add(int64(d))
	}
}

// SetGone has s answer nobody, as if its process were gone, until it is set to false. The
// counts stay.
func (s *Server) SetGone(gone bool) { s.gone.Store(gone) }

// SetTime turns the clock of s to t, where it stands from then on; Advance turns it further.
func (s *Server) SetTime(t time.Time) { s.at.Store(&t) }
