// Package breaker keeps a store that does not answer from costing every request
// the whole store timeout: after some failures in a row it fails at once, and lets
// one request at a time find out whether the store is back.
//
// It decorates any store.Store and knows neither its contents nor its place.
package breaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Store is a store.Store behind a circuit breaker. Make one with New.
type Store struct {
	next     store.Store
	breaker  *gobreaker.CircuitBreaker[store.State]
	answered atomic.Int64 // when a request last succeeded, in nanoseconds after made
	made     time.Time
}

var _ store.Store = (*Store)(nil)

// Options of a Store. The zero value suits a server.
type Options struct {
	Failures uint32            // in a row, that open the breaker; zero: DefaultFailures
	Silence  time.Duration     // without a success, that opens it after so many failures; zero: DefaultSilence
	Pause    time.Duration     // between an opening and the next probe; zero: DefaultPause
	Logger   *slog.Logger      // a line per change of state; nil: logs nothing
	OnChange func(closed bool) // called with every change; may be nil
}

// Defaults of Options.
const (
	DefaultFailures = 5           // fewer may be one node's restart
	DefaultPause    = time.Second // so that service is back within seconds of the store

	// DefaultSilence is the usual store timeout. Requests that one node of several was
	// asked for, which stands still, fail together: others were answered meanwhile.
	DefaultSilence = demand.DefaultStoreTimeout
)

// New returns next behind a breaker. A nil opts means the zero Options.
func New(next store.Store, opts *Options) *Store {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	o.Failures = cmp.Or(o.Failures, DefaultFailures)
	o.Pause = cmp.Or(o.Pause, DefaultPause)
	o.Silence = cmp.Or(o.Silence, DefaultSilence)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := &Store{next: next, made: time.Now()}
	s.answered.Store(int64(-o.Silence)) // nothing was yet
	s.breaker = gobreaker.NewCircuitBreaker[store.State](gobreaker.Settings{
		MaxRequests:   1,
		Timeout:       o.Pause,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= o.Failures && s.silent() >= o.Silence },
		IsExcluded:    excluded,
		OnStateChange: o.changed,
	})
	return s
}

// silent returns for how long no request has succeeded.
func (s *Store) silent() time.Duration { return time.Since(s.made) - time.Duration(s.answered.Load()) }

// hear notes that a request has succeeded.
func (s *Store) hear() { s.answered.Store(int64(time.Since(s.made))) }

// excluded reports whether err says nothing of the store as a whole: the caller went
// away, a level asks for more replicas than are alive, which costs no time, or
// somebody else changed a cell first.
func excluded(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, store.ErrTooFewReplicas) ||
		errors.Is(err, store.ErrConflict)
}

// changed reports a change between serving and failing; probes are neither.
func (o *Options) changed(_ string, from, to gobreaker.State) {
	switch {
	case to == gobreaker.StateClosed:
		o.Logger.Info("the store answers again")
	case from == gobreaker.StateClosed:
		o.Logger.Error("the store does not answer: policies decide as their on_store_error says", "failures", o.Failures)
	default:
		return
	}
	if o.OnChange != nil {
		o.OnChange(to == gobreaker.StateClosed)
	}
}

// Read reads from the store. While the breaker is open its error wraps
// store.ErrUnavailable.
func (s *Store) Read(ctx context.Context, q *store.Query) (store.State, error) {
	return s.do(func() (store.State, error) { return s.next.Read(ctx, q) })
}

// Write writes to the store. While the breaker is open its error wraps
// store.ErrUnavailable and store.ErrNotStored.
func (s *Store) Write(ctx context.Context, w *store.Write) error {
	_, err := s.do(func() (store.State, error) { return store.State{}, s.next.Write(ctx, w) })
	return unsent(err)
}

// unsent returns err, which says that nothing is stored if the breaker was open.
func unsent(err error) error {
	if errors.Is(err, errOpen) {
		return fmt.Errorf("%w: %w", err, store.ErrNotStored)
	}
	return err
}

// WriteThenRead writes to the store, like Write, and reads from it. It is one request, but a
// store that has written is not silent.
func (s *Store) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (state store.State, wrote bool, err error) {
	state, err = s.do(func() (read store.State, err error) {
		if read, wrote, err = s.next.WriteThenRead(ctx, w, q); wrote {
			s.hear()
		}
		return read, err
	})
	if !wrote {
		err = unsent(err)
	}
	return state, wrote, err
}

// WriteEach writes to the store, like Write. As a whole it is one request, which succeeded if one
// of its writes did.
func (s *Store) WriteEach(ctx context.Context, w []store.Write, wrote func(i int, err error)) {
	var succeeded atomic.Bool
	var failed atomic.Pointer[error]
	_, err := s.do(func() (store.State, error) {
		s.next.WriteEach(ctx, w, func(i int, err error) {
			if err == nil {
				succeeded.Store(true)
			} else {
				failed.Store(&err)
			}
			wrote(i, err)
		})
		if err := failed.Load(); err != nil && !succeeded.Load() {
			return store.State{}, *err
		}
		return store.State{}, nil
	})
	if errors.Is(err, errOpen) {
		for i := range w {
			wrote(i, unsent(err))
		}
	}
}

var errOpen = fmt.Errorf("%w: it failed several times in a row and is being probed", store.ErrUnavailable)

func (s *Store) do(request func() (store.State, error)) (store.State, error) {
	state, err := s.breaker.Execute(request)
	if err == nil {
		s.hear()
	}
	if errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return state, errOpen
	}
	return state, err
}
