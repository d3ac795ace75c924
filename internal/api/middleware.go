package api

import (
	"cmp"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// RouteUnknown is reported for a request without a route. Its path is never reported, because anything may be in it.
const RouteUnknown = "unknown"

// requestIDHeader carries the request's id both ways.
const requestIDHeader = "X-Request-Id"

// maxRequestIDLen is the maximum length of request ids from clients. A UUID, a ULID and the id of a trace are shorter.
const maxRequestIDLen = 128

// requestID returns the id of r for its answer and for the log: the client's if it is acceptable, else a new one.
func requestID(r *http.Request) []string {
	if id := r.Header[requestIDHeader]; len(id) == 1 && isRequestID(id[0]) {
		return id
	}
	return []string{newRequestID()}
}

// newRequestID returns 128 random bits in base 32. They need not be hard to guess.
func newRequestID() string {
	const alphabet, half = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 13
	var id [2 * half]byte
	for i, bits := range [...]uint64{rand.Uint64(), rand.Uint64()} {
		for j := range half {
			id[i*half+j] = alphabet[bits%uint64(len(alphabet))]
			bits /= uint64(len(alphabet))
		}
	}
	return string(id[:])
}

// randomID matches ids that are made at random: a UUID, 32 digits of hex as nginx and
// traces have them, 26 of base 32 as a ULID has them.
var randomID = regexp.MustCompile(`^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}|[0-9A-Z]{26})$`)

// maxDigits is the maximum of digits in a row in other ids. The shortest phone numbers and addresses have one more.
const maxDigits = 6

// isRequestID reports whether id is short and plain enough for a log line. To keep out phone numbers and addresses, it
// must not contain '+', '@' or ':', and unless it looks random, it must have a letter, and few digits in a row,
// whatever separates them.
func isRequestID(id string) bool {
	letters, digits := false, 0
	for _, c := range []byte(id) {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			letters = true
			if digits <= maxDigits {
				digits = 0
			}
		case c != '-' && c != '_' && c != '.':
			return false
		}
	}
	return len(id) <= maxRequestIDLen && (letters && digits <= maxDigits || randomID.MatchString(id) && tracing.IsOpaque(id))
}

// observe gives every request its exchange and its id, measures its time, calls Options.Observe and logs it.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := s.begin(w, r)
		defer s.end(x)
		id := requestID(r)
		w.Header()[requestIDHeader], x.requestID = id, id[0]
		start := s.opts.Now()
		r, x.span = s.trace(r)
		next.ServeHTTP(x, r)
		took := s.opts.Now().Sub(start)
		x.status = cmp.Or(x.status, http.StatusOK)
		route := routeOf(r)
		if s.opts.Observe != nil {
			s.opts.Observe(route, x.status, took, x.span.SampledID())
		}
		s.logRequest(r, route, x, took)
		x.span.Answered(r.Method, route, x.status, x.failure())
	})
}

// trace begins the span of a request below /v1.
func (s *Server) trace(r *http.Request) (*http.Request, tracing.Span) {
	if s.opts.Tracer == nil || !strings.HasPrefix(r.URL.Path, "/v1/") {
		return r, tracing.Span{}
	}
	return s.opts.Tracer.Request(r)
}

// routeOf returns the pattern that r matched, never its path.
func routeOf(r *http.Request) string {
	if matched := chi.RouteContext(r.Context()); matched != nil {
		if pattern := matched.RoutePattern(); pattern != "" {
			return pattern
		}
	}
	return RouteUnknown
}

// methodOf returns the method if it is a standard one, else other, because anything may be in it.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}

func (s *Server) logRequest(r *http.Request, route string, x *exchange, took time.Duration) {
	failed := x.failure()
	level := levelOf(x.status)
	if failed != nil {
		level = slog.LevelWarn
	}
	level, attrs := s.refused.Of(x.status).Level(level, s.opts.Now())
	if !s.opts.Logger.Enabled(r.Context(), level) {
		return
	}
	attrs = append(attrs, slog.String("method", methodOf(r)), slog.String("route", route), slog.Int("status", x.status),
		slog.Duration("took", took), slog.String("request_id", x.Header().Get(requestIDHeader)))
	if id := x.span.TraceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	switch {
	case failed != nil:
		attrs = append(attrs, slog.Any("error", failed))
	case x.kind != nil: // the error itself may contain parts of the request
		attrs = append(attrs, slog.Any("error", x.kind))
	}
	s.opts.Logger.LogAttrs(r.Context(), level, "request", attrs...)
}

// levelOf returns the level at which a status is logged: decisions at debug, mistakes of callers at info, failures of
// the service at warn.
func levelOf(status int) slog.Level {
	switch {
	case status >= http.StatusInternalServerError:
		return slog.LevelWarn
	case status >= http.StatusBadRequest && status != http.StatusTooManyRequests:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// recoverPanic answers a handler's panic with a 500 and logs it with its stack.
func (s *Server) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // net/http's own way to end a response; it logs nothing
			}
			s.panics.Panic(r.Context(), s.opts.Logger, "panic in a handler", cause, s.opts.Now())
			x := w.(*exchange)
			if x.status != 0 {
				panic(http.ErrAbortHandler) // part of an answer is out: the client must see that it is cut short
			}
			failure := &decode.CallError{Err: errPanic}
			if r.Method == http.MethodPost {
				failure.Recorded = count.RecordedUnknown
			}
			s.fail(x, r, failure)
		}()
		next.ServeHTTP(w, r)
	})
}

// errPanic is a handler's panic, which recoverPanic has logged.
var errPanic = errors.New("panic")
