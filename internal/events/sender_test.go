package events_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/events"
)

// secret is the secret of Standard Webhooks' examples.
const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// cloudEvent is an event as a receiver reads it.
type cloudEvent struct {
	SpecVersion, ID, Source, Type string
	Time                          time.Time
	DataContentType               string
	Data                          json.RawMessage
}

// receiver accepts events, and verifies their signatures.
type receiver struct {
	t       *testing.T
	refuses func(id string) bool // an attempt; nil: none

	mu       sync.Mutex
	attempts []string // ids
	taken    []cloudEvent
	headers  []http.Header
	changed  chan struct{}
}

func newReceiver(t *testing.T) *receiver { return &receiver{t: t, changed: make(chan struct{}, 1)} }

func (r *receiver) ServeHTTP(w http.ResponseWriter, sent *http.Request) {
	body, err := io.ReadAll(sent.Body)
	var e cloudEvent
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err != nil || sent.Method != http.MethodPost {
		r.t.Errorf("%s: %v", sent.Method, err)
	}
	r.verify(sent.Header, body)
	r.mu.Lock()
	r.attempts = append(r.attempts, e.ID)
	r.mu.Unlock()
	if r.refuses != nil && r.refuses(e.ID) {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	r.mu.Lock()
	r.taken, r.headers = append(r.taken, e), append(r.headers, sent.Header)
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// verify verifies a signature as Standard Webhooks specifies it: of id, timestamp and body, with dots between.
func (r *receiver) verify(h http.Header, body []byte) {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); !slices.Contains(strings.Fields(h.Get("webhook-signature")), want) {
		r.t.Errorf("signature %q, want %q", h.Get("webhook-signature"), want)
	}
}

// await waits for n accepted events, and returns them.
func (r *receiver) await(n int) []cloudEvent {
	r.t.Helper()
	late := time.After(time.Minute)
	for {
		r.mu.Lock()
		taken := slices.Clone(r.taken)
		r.mu.Unlock()
		if len(taken) >= n {
			return taken
		}
		select {
		case <-r.changed:
		case <-late:
			r.t.Fatalf("%d events are taken within a minute, want %d", len(taken), n)
		}
	}
}

// RoundTrip answers by r, without a network.
func (r *receiver) RoundTrip(sent *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, sent)
	return w.Result(), nil
}

// outcomes counts outcomes of events.
type outcomes struct {
	sent chan struct{} // has a value for each event, as far as there is room

	mu sync.Mutex
	of map[events.Outcome]int
}

func (o *outcomes) observe(_ events.Kind, became events.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[became]++; became != events.Sent {
		return
	}
	select {
	case o.sent <- struct{}{}:
	default:
	}
}

func (o *outcomes) count(of events.Outcome) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.of[of]
}

// newSender returns a Sender, which the test runs, and its outcomes.
func newSender(t *testing.T, o events.Options) (*events.Sender, *outcomes) {
	t.Helper()
	secrets, err := events.ParseSecrets(secret)
	if err != nil {
		t.Fatal(err)
	}
	counted := &outcomes{sent: make(chan struct{}, 100), of: make(map[events.Outcome]int)}
	o.Secrets, o.Source, o.Self, o.Agent = secrets, "/ratelimitd/default", func() string { return "host, process 7" }, "ratelimitd/v1"
	o.Observe, o.Log = counted.observe, slog.New(slog.DiscardHandler)
	return events.New(o), counted
}

// run runs s until the test ends, or the returned function is called.
func run(t *testing.T, s *events.Sender) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// TestEventIsACloudEvent holds that an event is one of CloudEvents 1.0 in structured mode.
func TestEventIsACloudEvent(t *testing.T) {
	r := newReceiver(t)
	server := httptest.NewServer(r)
	defer server.Close()
	s, _ := newSender(t, events.Options{URL: server.URL + "/events?token=x"})
	run(t, s)
	began := time.Now()
	s.Tell(events.DegradedBegan, events.Degraded{Since: began, Policies: map[string]int64{"login": 3}})
	s.TellForAll(events.BlockEnded, events.Block{Policy: "login", Key: "f1c67becc89aa143"})
	for i, e := range r.await(2) {
		want := map[string]string{
			"ratelimitd.degraded.began": "/ratelimitd/default/host%2C%20process%207", "ratelimitd.block.ended": "/ratelimitd/default",
		}[e.Type]
		if e.SpecVersion != "1.0" || e.ID == "" || want == "" || e.Source != want || e.DataContentType != "application/json" ||
			e.Time.Before(began.Add(-time.Millisecond)) || e.Time.Location() != time.UTC {
			t.Errorf("%+v", e)
		}
		h := r.headers[i]
		if h.Get("Content-Type") != "application/cloudevents+json" || h.Get("User-Agent") != "ratelimitd/v1" || h.Get("webhook-id") != e.ID {
			t.Errorf("%v", h)
		}
	}
}

// TestEachKindIsInOrder holds that events of a kind arrive in order, each once, although some attempts are refused, and that
// a repeated attempt has the same id.
func TestEachKindIsInOrder(t *testing.T) {
	r := newReceiver(t)
	failing := map[int]bool{0: true, 3: true, 4: true}
	n := 0
	r.refuses = func(string) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		n++
		return failing[n-1]
	}
	server := httptest.NewServer(r)
	defer server.Close()
	s, counted := newSender(t, events.Options{URL: server.URL})
	const each = 20
	for i := range each {
		s.TellForAll(events.BlockMade, events.Block{Policy: "login", Strikes: i})
		s.TellForAll(events.PoliciesChanged, events.Policies{Version: int64(i)})
	}
	stop := run(t, s)
	next := make(map[string]int)
	ids := make(map[string]bool)
	for _, e := range r.await(2 * each) {
		var data struct{ Strikes, Version int }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		if at := data.Strikes + data.Version; at != next[e.Type] {
			t.Errorf("%s: number %d after %d", e.Type, at, next[e.Type]-1)
		}
		next[e.Type]++
		ids[e.ID] = true
	}
	for range 2 * each { // otherwise the last one may be sent again
		<-counted.sent
	}
	stop()
	if len(ids) != 2*each || len(r.attempts) != 2*each+len(failing) {
		t.Errorf("%d events by %d attempts", len(ids), len(r.attempts))
	}
	if counted.count(events.Sent) != 2*each || counted.count(events.Failed) != len(failing) ||
		counted.count(events.Lost) > 0 || s.Waiting() > 0 {
		t.Errorf("%v, %d wait", counted.of, s.Waiting())
	}
}

// TestReceiverThatHangsHoldsNobodyUp sends more events than may wait to a receiver that does not answer. Once it does, the
// event that was being sent and the newest ones arrive in order, and only the others are lost.
func TestReceiverThatHangsHoldsNobodyUp(t *testing.T) {
	r := newReceiver(t)
	hang, held := make(chan struct{}), make(chan struct{}, 1)
	r.refuses = func(string) bool {
		select {
		case held <- struct{}{}:
		default:
		}
		<-hang
		return false
	}
	server := httptest.NewServer(r)
	defer server.Close()
	s, counted := newSender(t, events.Options{URL: server.URL})
	run(t, s)
	const told, most = 2500, 1000
	s.TellForAll(events.BlockMade, events.Block{})
	<-held
	for i := 1; i < told; i++ {
		s.TellForAll(events.BlockMade, events.Block{Strikes: i})
	}
	if s.Waiting() != 1+most || counted.count(events.Lost) != told-1-most {
		t.Errorf("%d wait, %d are lost", s.Waiting(), counted.count(events.Lost))
	}
	close(hang)
	taken := r.await(most + 1)[1:] // the first one was being sent
	for i, e := range taken {
		var data events.Block
		if err := json.Unmarshal(e.Data, &data); err != nil || data.Strikes != told-most+i {
			t.Fatalf("event %d is number %d, %v", i, data.Strikes, err)
		}
	}
}

// TestWaitsGrow holds that waits grow to a minute if all attempts are refused, and that the event is lost after an hour.
func TestWaitsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReceiver(t)
		var at []time.Time
		r.refuses = func(string) bool { at = append(at, time.Now()); return true }
		s, counted := newSender(t, events.Options{URL: "http://receiver", Through: r})
		began := time.Now()
		s.TellForAll(events.BlockMade, events.Block{})
		stop := run(t, s)
		time.Sleep(2 * time.Hour)
		stop()
		if counted.count(events.Lost) != 1 || counted.count(events.Failed) != len(at) || s.Waiting() > 0 {
			t.Errorf("%v after %d attempts, %d wait", counted.of, len(at), s.Waiting())
		}
		if lasted := at[len(at)-1].Sub(began); lasted < time.Hour || lasted > time.Hour+time.Minute {
			t.Errorf("tried for %v", lasted)
		}
		for i := 1; i < len(at); i++ {
			most := min(time.Second<<min(i-1, 10), time.Minute)
			if wait := at[i].Sub(at[i-1]); wait < most/2 || wait > most {
				t.Errorf("wait %d is %v, want %v to %v", i, wait, most/2, most)
			}
		}
		if same := slices.Compact(slices.Clone(r.attempts)); len(same) != 1 {
			t.Errorf("attempts have %d ids", len(same))
		}
	})
}

// TestLastEventsAreSent holds that events that wait when a sender ends are sent, or lost if the receiver does not answer
// within a second.
func TestLastEventsAreSent(t *testing.T) {
	for name, answers := range map[string]bool{"answers": true, "hangs": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReceiver(t)
				s, counted := newSender(t, events.Options{URL: "http://receiver", Through: through(func(sent *http.Request) (*http.Response, error) {
					if !answers {
						<-sent.Context().Done()
						return nil, sent.Context().Err()
					}
					return r.RoundTrip(sent)
				})})
				for range 3 {
					s.TellForAll(events.BlockMade, events.Block{})
				}
				began := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				_ = s.Run(ctx)
				if took := time.Since(began); took > time.Second || counted.count(events.Sent)+counted.count(events.Lost) != 3 {
					t.Errorf("%v after %v", counted.of, took)
				}
				if sent := counted.count(events.Sent); answers && sent != 3 || !answers && sent != 0 {
					t.Errorf("%d are sent", sent)
				}
			})
		})
	}
}

// through is an http.RoundTripper.
type through func(*http.Request) (*http.Response, error)

func (f through) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRedirectsAreNotFollowed holds that an event is not sent to another receiver, for which it is not signed.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the event went elsewhere") }))
	defer other.Close()
	redirected := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, sent *http.Request) {
		http.Redirect(w, sent, other.URL, http.StatusTemporaryRedirect)
		redirected <- struct{}{}
	}))
	defer server.Close()
	s, counted := newSender(t, events.Options{URL: server.URL})
	s.TellForAll(events.BlockMade, events.Block{})
	stop := run(t, s)
	<-redirected
	stop()
	if counted.count(events.Sent) > 0 {
		t.Error("a redirect is no answer")
	}
}

// TestSecrets holds that secrets have the form of Standard Webhooks, and that no error contains one.
func TestSecrets(t *testing.T) {
	short := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))
	for text, want := range map[string]string{
		secret:                             "",
		secret + "\n" + secret + "\n":      "",
		"":                                 "there is no secret",
		"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw": "secret 1 is not valid: write whsec_",
		secret + " whsec_?":                "secret 2 is not valid",
		short:                              "secret 1 has 23 bytes: use 24 to 64",
	} {
		secrets, err := events.ParseSecrets(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) ||
			err == nil && len(secrets) != len(strings.Fields(text)) {
			t.Errorf("%q: %d secrets, %v", text, len(secrets), err)
		}
		for _, field := range strings.Fields(text) {
			if err != nil && strings.Contains(err.Error(), field) {
				t.Errorf("the error has a secret: %v", err)
			}
		}
	}
}
