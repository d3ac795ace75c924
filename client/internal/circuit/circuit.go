// Package circuit keeps calls from waiting for a service that does not answer: after some failures in a row requests
// fail at once, and one at a time probes whether the service is back.
//
// The package knows nothing of requests: Options.Answered distinguishes answers from failures.
package circuit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// ErrOpen is the error of a request that was not made, because requests before it failed.
var ErrOpen = errors.New("it failed several times in a row and is being probed")

// Options of a Breaker. All are required.
type Options struct {
	MaxFailures   uint32           // failures in a row after which requests fail at once
	ProbeInterval time.Duration    // between probes
	Answered      func(error) bool // whether a request that returned this error, not nil, was answered
	OnOpen        func()           // called when requests begin to fail at once
	OnClose       func()           // called when requests are made again
}

// Breaker makes requests, or lets them fail at once. It is safe for concurrent use. Make one with New.
type Breaker struct {
	answered func(error) bool
	circuit  *gobreaker.CircuitBreaker[struct{}]
	made     time.Time
	last     atomic.Int64 // when a request, or some of its calls, was last answered, in nanoseconds after made
	hurry    hurry
}

// silence is the least time without an answer, besides the failures in a row, before requests fail at once: calls with
// little time fail together while others are answered.
const silence = 500 * time.Millisecond

// New returns a Breaker that makes requests.
func New(o Options) *Breaker {
	b := &Breaker{answered: o.Answered, made: time.Now()}
	b.last.Store(int64(-silence)) // no request was answered yet
	b.circuit = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  1,
		Timeout:      o.ProbeInterval,
		ReadyToTrip:  func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= o.MaxFailures && b.silent() >= silence },
		IsSuccessful: func(err error) bool { return err == nil || o.Answered(err) },
		IsExcluded:   func(err error) bool { return errors.Is(err, context.Canceled) || errors.As(err, new(*hastyError)) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case to == gobreaker.StateClosed:
				o.OnClose()
			case from == gobreaker.StateClosed:
				o.OnOpen()
			}
		},
	})
	return b
}

// Heard notes that a request, or some of its calls, was answered.
func (b *Breaker) Heard() { b.last.Store(int64(time.Since(b.made))) }

// Do makes a request and returns its error. It returns ErrOpen if requests fail at once.
func (b *Breaker) Do(request func() error) error {
	_, err := b.circuit.Execute(func() (struct{}, error) {
		began := time.Now()
		err := request()
		if errors.Is(err, context.DeadlineExceeded) && time.Since(began) < silence && b.hurry.excuses(b.silent()) {
			err = &hastyError{err}
		}
		return struct{}{}, err
	})
	if hasty, ok := errors.AsType[*hastyError](err); ok {
		return hasty.error
	}
	switch {
	case err == nil || b.answered(err):
		b.Heard()
	case errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests):
		return ErrOpen
	}
	return err
}

// silent returns how long no request has been answered.
func (b *Breaker) silent() time.Duration {
	return time.Since(b.made) - time.Duration(b.last.Load())
}

// hastyError is the error of a request whose caller had too little time to say anything about the service.
type hastyError struct{ error }

// hurry detects requests that end one after the other, sooner than after silence, because their callers' own time is
// over. A few at once, after a pause, are the callers' fault. If that continues for silence without an answer, it is
// the service's.
type hurry struct {
	mu          sync.Mutex
	first, last time.Time // the first and last of such requests
}

// hurryEnds is the pause after which the next such request counts as the first again.
const hurryEnds = 10 * silence

// excuses reports whether a request that ends now says nothing about the service. silent is the time since its last
// answer.
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
