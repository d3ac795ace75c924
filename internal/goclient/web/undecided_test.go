package web_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

// TestNothingFailsOpenInSilence has requests pass, or be refused, for each reason that nobody
// decided them: each is told, counted and logged.
func TestNothingFailsOpenInSilence(t *testing.T) {
	s := serviceAt(t, volumes)
	failOpen := s.Client(&client.Options{OnUnavailable: client.FailOpen})
	large := httplimit.After(httplimit.ResponseBytes)
	for name, c := range map[string]struct {
		limits httplimit.Decider
		rule   httplimit.Rule
		closed bool
		gone   bool
		status int
		notes  uint64 // of a request
	}{
		"no such policy":              {s.Client(nil), httplimit.Use("no-such"), false, false, 200, 1},
		"no such policy, closed":      {s.Client(nil), httplimit.Use("no-such"), true, false, 503, 1},
		"the service is gone":         {s.Client(nil), httplimit.Use("api"), false, true, 200, 1},
		"the service is gone, closed": {s.Client(nil), httplimit.Use("api"), true, true, 503, 1},
		"a client that fails open":    {failOpen, httplimit.Use("api"), false, true, 200, 1},
		"a charge is lost, too":       {s.Client(nil), httplimit.Use("down", large), false, true, 200, 2},
		"by a client that fails open": {failOpen, httplimit.Use("down", large), false, true, 200, 2},
		"nothing is wrong":            {s.Client(nil), httplimit.Use("api"), false, false, 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			var told atomic.Uint64
			limit := httplimit.New(c.limits, &httplimit.Options{
				FailClosed: c.closed, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Undecided: func(r *http.Request, call client.Call, err error) {
					if r == nil || err == nil || len(call.Demands) != 1 || call.Demands[0].Policy == "" {
						t.Errorf("%v, %+v, %v", r, call, err)
					}
					told.Add(1)
				},
			})
			h := limit.All(c.rule)(echo)
			s.SetGone(c.gone)
			defer s.SetGone(false)
			const requests = 3
			for range requests {
				if res := send(h, "needle", "text"); res.StatusCode != c.status {
					t.Errorf("status %d, want %d", res.StatusCode, c.status)
				}
			}
			if told.Load() != requests*c.notes || limit.Undecided() != requests*c.notes {
				t.Errorf("%d told, %d counted, want %d", told.Load(), limit.Undecided(), requests*c.notes)
			}
			if lines := strings.Count(log.String(), "level=ERROR"); lines < int(c.notes) || c.notes == 0 && lines > 0 {
				t.Errorf("the log is %q", log.String())
			}
			if strings.Contains(log.String(), "needle") {
				t.Errorf("the log says who asked: %s", log.String())
			}
		})
	}
}

// TestNobodyIsToldToBeSilent has the log of the process be the one of a Limiter without another.
func TestNobodyIsToldToBeSilent(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	s := serviceAt(t, volumes)
	send(httplimit.New(s.Client(nil), nil).Policy("no-such")(echo), "", "x")
	if !strings.Contains(log.String(), "requests pass without a limit") {
		t.Errorf("the log is %q", log.String())
	}
}

// TestVerify finds policies that are not there at the start.
func TestVerify(t *testing.T) {
	s := serviceAt(t, volumes+`
  - name: numbers
    limits: [{algorithm: fixed-window, limit: 1, window: 1h}]
    normalize: e164
  - name: closed
    limits: [{algorithm: fixed-window, limit: 0, window: 1h}]
`)
	limits := s.Client(nil)
	limit := httplimit.New(limits, nil)
	if err := limit.Verify(t.Context()); err != nil {
		t.Errorf("no policies: %v", err)
	}
	limit.All(httplimit.Use("api"), httplimit.Use("down", httplimit.After(httplimit.ResponseBytes)))
	limit.Policy("numbers")
	limit.Policy("closed")
	if err := limit.Verify(t.Context()); err != nil {
		t.Errorf("all are there: %v", err)
	}
	limit.Policy("upp")
	limit.Policy("downn", httplimit.After(httplimit.ResponseBytes))
	err := limit.Verify(t.Context())
	if !errors.Is(err, client.ErrUnknownPolicy) || !strings.Contains(err.Error(), `"upp"`) || !strings.Contains(err.Error(), `"downn"`) ||
		strings.Contains(err.Error(), `"api"`) {
		t.Errorf("two are not: %v", err)
	}
	if used := usedOf(t, limits, "api", "verify"); used != 0 {
		t.Errorf("%d were recorded", used)
	}
	s.SetGone(true)
	failOpen := httplimit.New(s.Client(&client.Options{OnUnavailable: client.FailOpen}), nil)
	failOpen.Policy("api")
	for _, l := range []*httplimit.Limiter{limit, failOpen} {
		if err := l.Verify(t.Context()); !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("nobody knows: %v", err)
		}
	}
}
