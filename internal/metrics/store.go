package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// The values of the label op.
const (
	storeRead   = "read"
	storeWrite  = "write"
	storeUpdate = "update"

	storeWriteRead = "write_read" // a write, and the read after it
)

// newStoreVec has buckets for a store in memory (microseconds), one nearby (hundreds of microseconds to milliseconds),
// and the default store timeout of 500 ms.
func newStoreVec(auto factory) *prometheus.HistogramVec {
	durations := auto.histograms("ratelimitd_store_duration_seconds", "Time that a request to the store took, by operation and outcome.",
		[]float64{.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}, "op", "outcome")
	for _, op := range []string{storeRead, storeWrite, storeUpdate, storeWriteRead} {
		durations.WithLabelValues(op, storeOutcome(nil)) // so that rates have a zero to start from
	}
	return durations
}

// ObserveStore counts an operation for ctx that took d and returned err. op must have few values.
func (m *Metrics) ObserveStore(ctx context.Context, op string, d time.Duration, err error) {
	trace := ""
	if m.traced {
		trace = tracing.SampledID(ctx)
	}
	observe(m.operations.of([2]string{op, storeOutcome(err)}, m.store.WithLabelValues), d, trace)
}

func storeOutcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, store.ErrConflict):
		return "conflict"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, store.ErrOverloaded):
		return "overloaded"
	case errors.Is(err, store.ErrUnavailable):
		return "unavailable"
	}
	return "error"
}

// Store returns next with its operations observed. It is a store.Exclusive if next is.
func (m *Metrics) Store(next store.Store) store.Store {
	if exclusive, ok := next.(store.Exclusive); ok {
		return &observedExclusive{observedStore: observedStore{next: next, metrics: m}, next: exclusive}
	}
	return &observedStore{next: next, metrics: m}
}

// observedStore measures the time of every operation of a store.
type observedStore struct {
	next    store.Store
	metrics *Metrics
}

// took observes an operation that began at start and ends now, with err.
func (s *observedStore) took(ctx context.Context, op string, start time.Time, err *error) {
	s.metrics.ObserveStore(ctx, op, s.metrics.now().Sub(start), *err)
}

// Read reads from the next store.
func (s *observedStore) Read(ctx context.Context, q *store.Query) (state store.State, err error) {
	defer s.took(ctx, storeRead, s.metrics.now(), &err)
	return s.next.Read(ctx, q)
}

// Write writes to the next store.
func (s *observedStore) Write(ctx context.Context, w *store.Write) (err error) {
	defer s.took(ctx, storeWrite, s.metrics.now(), &err)
	return s.next.Write(ctx, w)
}

// WriteThenRead writes to the next store and reads from it.
func (s *observedStore) WriteThenRead(
	ctx context.Context, w *store.Write, q *store.Query,
) (state store.State, wrote bool, err error) {
	defer s.took(ctx, storeWriteRead, s.metrics.now(), &err)
	return s.next.WriteThenRead(ctx, w, q)
}

// WriteEach writes to the next store. Each write is observed by itself.
func (s *observedStore) WriteEach(ctx context.Context, w []store.Write, wrote func(i int, err error)) {
	start := s.metrics.now()
	s.next.WriteEach(ctx, w, func(i int, err error) {
		s.metrics.ObserveStore(ctx, storeWrite, s.metrics.now().Sub(start), err)
		wrote(i, err)
	})
}

// observedExclusive is an observedStore that can lock a key.
type observedExclusive struct {
	observedStore
	next store.Exclusive
}

// Update updates the next store.
func (s *observedExclusive) Update(ctx context.Context, q *store.Query, decide func(*store.State, *store.Write)) (err error) {
	defer s.took(ctx, storeUpdate, s.metrics.now(), &err)
	return s.next.Update(ctx, q, decide)
}

// UpdateAll updates the next store.
func (s *observedExclusive) UpdateAll(ctx context.Context, q []store.Query, decide func([]store.State, []store.Write)) (err error) {
	defer s.took(ctx, storeUpdate, s.metrics.now(), &err)
	return s.next.UpdateAll(ctx, q, decide)
}
