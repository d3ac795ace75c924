package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/throttle"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// RouteUnknown stands for the route of a request that none matches. Paths
// themselves are never reported: anything may be in them.
const RouteUnknown = "unknown"

// requestIDHeader carries the request's id both ways.
const requestIDHeader = "X-Request-Id"

// maxRequestIDLen bounds the request ids that are taken over: a UUID, a ULID and
// a trace's id are all shorter.
const maxRequestIDLen = 128

// requestID returns the id of r for its answer and for the log: the client's where that
// is sane, else a new one.
func requestID(r *http.Request) []string {
	if id := r.Header[requestIDHeader]; len(id) == 1 && isRequestID(id[0]) {
		return id
	}
	return []string{newRequestID()}
}

// newRequestID returns 128 random bits in base 32: no two ids are alike, and nothing
// depends on nobody guessing one.
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

// maxDigits is how many digits in a row an id may have that is not of those. The shortest phone
// numbers and addresses that are anybody's have one more.
const maxDigits = 6

// isRequestID reports whether id is short and plain enough for a log line. Phone numbers and
// addresses are not to get there by mistake: it has no '+', '@' and ':', and unless it is
// random, and no padded number, it has a letter, and few digits in a row, whatever separates them.
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

// observe gives every request its exchange and its id, times it, hands it to
// Options.Observe and logs it.
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
		if x.status == 0 {
			x.status = http.StatusOK
		}
		route := routeOf(r)
		if s.opts.Observe != nil {
			s.opts.Observe(route, x.status, took, x.span.SampledID())
		}
		s.logRequest(r, route, x, took)
		x.span.Answered(r.Method, route, x.status, x.failure())
	})
}

// trace begins the span of a request that asks for something that takes more than a look at this process.
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

// methodOf returns the method if it is one of HTTP's own; anything may be in others.
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
	case x.kind != nil: // what a caller got wrong may hold what they sent
		attrs = append(attrs, slog.Any("error", x.kind))
	}
	s.opts.Logger.LogAttrs(r.Context(), level, "request", attrs...)
}

// levelOf returns how loudly a status is logged: what a limiter is for quietly,
// mistakes of callers at info, failures of the service at warn.
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
			s.logPanic(r.Context(), "panic in a handler", cause)
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

// logPanic logs the cause of a panic where it is recovered.
func (s *Server) logPanic(ctx context.Context, where string, cause any) {
	if unlogged, pass := s.panics.Pass(s.opts.Now()); pass {
		s.opts.Logger.ErrorContext(ctx, where, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()), throttle.Unlogged, unlogged)
	}
}

// errPanic is a handler's panic, which recoverPanic has logged.
var errPanic = errors.New("panic")
