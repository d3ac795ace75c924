package events

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/throttle"
)

const (
	// maxWaiting is the maximum of waiting events of one kind, of some 200 bytes each. Beyond it the oldest is dropped,
	// because a receiver that recovers should learn the current state.
	maxWaiting = 1000
	// giveUpAfter is the age at which an event is not retried any more.
	giveUpAfter = time.Hour
	// attemptWithin is the timeout of an attempt.
	attemptWithin = 10 * time.Second
	// firstWait is the longest wait after the first failure. Each further one is twice as long, up to longestWait.
	firstWait   = time.Second
	longestWait = time.Minute
	// flushWithin is the time for the last events. A process has ten seconds to stop.
	flushWithin = time.Second
	// maxAnswer is the part of an answer that is read, so that its connection can be reused.
	maxAnswer = 4 << 10
)

// Outcome is the outcome of an event, or of an attempt to send it.
type Outcome int

// The outcomes.
const (
	Sent   Outcome = iota
	Lost           // the event was dropped
	Failed         // an attempt failed, and is repeated
)

// Options of a Sender. URL, Secrets and Log are needed.
type Options struct {
	URL     string
	Secrets [][]byte                        // each makes a signature
	Source  string                          // of events of all instances; a reference to a URI
	Self    func() string                   // the name of this instance, below Source
	Agent   string                          // the User-Agent
	Observe func(kind Kind, became Outcome) // must not block; may be nil
	Now     func() time.Time                // nil: time.Now
	Through http.RoundTripper               // nil: HTTP
	Log     *slog.Logger
}

// Sender sends events. A nil one sends none. It is safe for concurrent use; make one with New.
type Sender struct {
	opts   Options
	client *http.Client
	lanes  map[Kind]*lane
	lines  throttle.Second
}

// lane has the events of one kind that wait, in order.
type lane struct {
	kind Kind
	wake chan struct{}

	mu      sync.Mutex
	waiting []*event
}

// New returns a Sender with these options. Nothing is sent before Run.
func New(o Options) *Sender {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Observe == nil {
		o.Observe = func(Kind, Outcome) {}
	}
	if o.Self == nil {
		o.Self = func() string { return "" }
	}
	if o.Through == nil {
		o.Through = http.DefaultTransport.(*http.Transport).Clone()
	}
	s := &Sender{opts: o, lanes: make(map[Kind]*lane), client: &http.Client{
		Transport:     o.Through,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // events are signed for one receiver
	}}
	for _, kind := range Kinds {
		s.lanes[kind] = &lane{kind: kind, wake: make(chan struct{}, 1)}
	}
	return s
}

// Tell sends an event of this instance in the background. data must not be changed any more.
func (s *Sender) Tell(t Type, data any) {
	if s != nil {
		s.push(t, s.opts.Source+"/"+url.PathEscape(s.opts.Self()), data)
	}
}

// TellForAll is Tell for an event of all instances, which one of them sends.
func (s *Sender) TellForAll(t Type, data any) {
	if s != nil {
		s.push(t, s.opts.Source, data)
	}
}

func (s *Sender) push(t Type, source string, data any) {
	l := s.lanes[t.kind]
	l.mu.Lock()
	full := len(l.waiting) >= maxWaiting
	if full {
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
	l.waiting = append(l.waiting, &event{crand.Text(), source, t, s.opts.Now(), data})
	l.mu.Unlock()
	if full {
		s.lose(t.kind, 1, errFull)
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Errors of events that are lost.
var (
	errFull  = fmt.Errorf("%d events of their kind wait", maxWaiting)
	errEnded = errors.New("this instance ends")
)

// lose counts and logs dropped events.
func (s *Sender) lose(kind Kind, events int, err error) {
	for range events {
		s.opts.Observe(kind, Lost)
	}
	if s.lines.Allow(s.opts.Now()) {
		s.opts.Log.Warn("events are lost", "kind", kind, "count", events, "error", err)
	}
}

// Waiting returns the number of events to be sent.
func (s *Sender) Waiting() (n int) {
	for _, l := range s.lanes {
		l.mu.Lock()
		n += len(l.waiting)
		l.mu.Unlock()
	}
	return n
}

// Run sends events until ctx ends, and then tries the waiting ones once, for at most a second. It returns nil.
func (s *Sender) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	var all sync.WaitGroup
	for _, l := range s.lanes {
		all.Go(func() { s.send(ctx, l) })
	}
	all.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// send sends the events of l in order.
func (s *Sender) send(ctx context.Context, l *lane) {
	for ctx.Err() == nil {
		e := l.first()
		if e != nil {
			s.deliver(ctx, l, e)
			continue
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	for e := l.first(); e != nil; e = l.first() {
		if err := s.post(ctx, e); err != nil {
			l.mu.Lock()
			left := len(l.waiting)
			l.mu.Unlock()
			s.lose(l.kind, left, errors.Join(errEnded, err))
			return
		}
		s.done(l, e, Sent)
	}
}

// first returns the next event, nil if none waits.
func (l *lane) first() *event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil
	}
	return l.waiting[0]
}

// done removes e from l, unless it was dropped meanwhile.
func (s *Sender) done(l *lane, e *event, became Outcome) {
	l.mu.Lock()
	waits := len(l.waiting) > 0 && l.waiting[0] == e
	if waits {
		l.waiting = slices.Delete(l.waiting, 0, 1)
	}
	l.mu.Unlock()
	if waits {
		s.opts.Observe(l.kind, became)
	}
}

// deliver sends e, the first event of l, until the receiver accepts it, it is too old, or ctx ends.
func (s *Sender) deliver(ctx context.Context, l *lane, e *event) {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := s.post(ctx, e)
		switch {
		case err == nil:
			s.done(l, e, Sent)
			return
		case ctx.Err() != nil:
			return
		}
		s.opts.Observe(l.kind, Failed)
		now := s.opts.Now()
		if s.lines.Allow(now) {
			s.opts.Log.Warn("an event was not taken", "type", e.of.String(), "error", err)
		}
		if now.Sub(e.at) >= giveUpAfter {
			s.done(l, e, Lost)
			return
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return
		}
		if l.first() != e { // it was dropped meanwhile
			return
		}
	}
}

// body returns e in the JSON format of CloudEvents.
func (e *event) body() ([]byte, error) {
	return json.Marshal(struct {
		SpecVersion string    `json:"specversion"`
		ID          string    `json:"id"`
		Source      string    `json:"source"`
		Type        string    `json:"type"`
		Time        time.Time `json:"time"`
		ContentType string    `json:"datacontenttype"`
		Data        any       `json:"data"`
	}{"1.0", e.id, e.source, e.of.String(), e.at.UTC().Truncate(time.Millisecond), "application/json", e.data})
}

// post sends e once.
func (s *Sender) post(ctx context.Context, e *event) error {
	body, err := e.body()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.opts.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	now := s.opts.Now()
	r.Header.Set("Content-Type", "application/cloudevents+json")
	r.Header.Set("User-Agent", s.opts.Agent)
	r.Header.Set(headerID, e.id)
	r.Header.Set(headerTimestamp, strconv.FormatInt(now.Unix(), 10))
	r.Header.Set(headerSignature, sign(s.opts.Secrets, e.id, now, body))
	answer, err := s.client.Do(r)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) { // it has the URL, which may contain a token
			return wrapped.Err
		}
		return err
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer)
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("the receiver answered %d", answer.StatusCode)
	}
	return nil
}
