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
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/throttle"
)

const (
	// maxWaiting is the maximum of waiting events of one kind, of some 200 bytes each, besides the one that is being sent.
	// Beyond it the oldest is dropped, because a receiver that recovers should learn the current state.
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

// Options of a Sender. URL, Secrets and Log are required.
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
	opts    Options
	client  *http.Client
	lanes   map[Kind]chan *event // those that wait, in order
	waiting atomic.Int64         // in all lanes, and those that are being sent
	lines   throttle.Second
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
	s := &Sender{opts: o, lanes: make(map[Kind]chan *event), client: &http.Client{
		Transport:     o.Through,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // events are signed for one receiver
	}}
	for _, kind := range Kinds {
		s.lanes[kind] = make(chan *event, maxWaiting)
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
	e, lane := &event{crand.Text(), source, t, s.opts.Now(), data}, s.lanes[t.kind]
	s.waiting.Add(1)
	for {
		select {
		case lane <- e:
			return
		default:
		}
		select {
		case <-lane: // the oldest
			s.waiting.Add(-1)
			s.lose(t.kind, 1, errFull)
		default:
		}
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
func (s *Sender) Waiting() int { return int(s.waiting.Load()) }

// Run sends events until ctx ends, and then tries the waiting ones once, for at most a second. It returns nil.
func (s *Sender) Run(ctx context.Context) error {
	if s == nil {
		<-ctx.Done()
		return nil
	}
	var all sync.WaitGroup
	for _, lane := range s.lanes {
		all.Go(func() { s.flush(ctx, lane, s.send(ctx, lane)) })
	}
	all.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// send sends the events of lane in order until ctx ends. It returns the one that was not sent then, nil if there is none.
func (s *Sender) send(ctx context.Context, lane <-chan *event) (unsent *event) {
	for {
		select {
		case e := <-lane:
			if !s.deliver(ctx, e) {
				return e
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// flush tries to send e, which may be nil, and the events of lane once.
func (s *Sender) flush(ctx context.Context, lane <-chan *event, e *event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWithin)
	defer cancel()
	for ; ; e = nil {
		if e == nil {
			select {
			case e = <-lane:
			default:
				return
			}
		}
		if err := s.post(ctx, e); err != nil {
			s.lose(e.of.kind, 1+len(lane), errors.Join(errEnded, err))
			return
		}
		s.done(e, Sent)
	}
}

// done counts e, which is sent or lost.
func (s *Sender) done(e *event, became Outcome) {
	s.waiting.Add(-1)
	s.opts.Observe(e.of.kind, became)
}

// deliver sends e until the receiver accepts it or it is too old. It returns false if ctx ends before.
func (s *Sender) deliver(ctx context.Context, e *event) bool {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := s.post(ctx, e)
		switch {
		case err == nil:
			s.done(e, Sent)
			return true
		case ctx.Err() != nil:
			return false
		}
		s.opts.Observe(e.of.kind, Failed)
		now := s.opts.Now()
		if s.lines.Allow(now) {
			s.opts.Log.Warn("an event was not accepted", "type", e.of.String(), "error", err)
		}
		if now.Sub(e.at) >= giveUpAfter {
			s.done(e, Lost)
			return true
		}
		select {
		case <-time.After(wait/2 + rand.N(wait/2)):
		case <-ctx.Done():
			return false
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
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // it has the URL, which may contain a token
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
