package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breaker keeps a service that does not answer from costing every call its whole time: after
// some failures in a row requests fail at once, and one at a time finds out whether the service
// is back.
type breaker struct {
	circuit  *gobreaker.CircuitBreaker[struct{}]
	made     time.Time
	answered atomic.Int64 // when a request was last answered, or some of its calls, in nanoseconds after made
	hurry    hurry
}

// silence is how long no request has been answered, beside the failures in a row, when calls
// begin to fail at once: calls that have little time fail together while others are answered.
const silence = 500 * time.Millisecond

func newBreaker(o *Options) *breaker {
	b := &breaker{made: time.Now()}
	b.answered.Store(int64(-silence)) // nothing was yet
	b.circuit = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      o.Pause,
		ReadyToTrip:  func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= o.Failures && b.silent() >= silence },
		IsSuccessful: func(err error) bool { return err == nil || isProblem(err) },
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) || errors.As(err, new(*hastyError)) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case to == gobreaker.StateClosed:
				o.Logger.Info("ratelimitd answers again")
			case from == gobreaker.StateClosed:
				o.Logger.Error("ratelimitd does not answer: calls give what Options.OnUnavailable says", "failures", o.Failures)
			}
		},
	})
	return b
}

func isProblem(err error) bool {
	p := (*Problem)(nil)
	return errors.As(err, &p)
}

func (b *breaker) silent() time.Duration {
	return time.Since(b.made) - time.Duration(b.answered.Load())
}

// hear notes that a request, or some of its calls, was answered.
func (b *breaker) hear() { b.answered.Store(int64(time.Since(b.made))) }

// do makes a request, unless requests fail at once.
func (b *breaker) do(request func() error) error {
	_, err := b.circuit.Execute(func() (struct{}, error) {
		began := time.Now()
		err := request()
		if errors.Is(err, context.DeadlineExceeded) && time.Since(began) < silence && b.hurry.excuses(b.silent()) {
			err = &hastyError{err}
		}
		return struct{}{}, err
	})
	if hasty := (*hastyError)(nil); errors.As(err, &hasty) {
		return hasty.error
	}
	switch {
	case err == nil || isProblem(err):
		b.hear()
	case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
		return &goneError{errOpen, true}
	}
	return err
}

// hastyError is a request of a caller who had too little time to tell anything of the service.
type hastyError struct{ error }

// hurry is since when requests have ended one after the other because their callers' own time
// was over, sooner than after silence. A few at once, after a pause, are the callers' doing; if
// that goes on for silence without an answer, the service's.
type hurry struct {
	mu          sync.Mutex
	first, last time.Time
}

// hurryEnds is after how long without such a request the next one is the first again.
const hurryEnds = 10 * silence

// excuses reports whether one that ends now, and so long after the last answer, tells nothing
// of the service.
func (h *hurry) excuses(silent time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if now.Sub(h.last) > hurryEnds || now.Sub(h.first) > silent {
		h.first = now
	}
	h.last = now
	return now.Sub(h.first) < silence
}
