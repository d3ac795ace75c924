package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const typedPhone = "+44 7700 900123"

// post sends body to a service that asks the ratelimitd at url, and returns the
// answer, how many codes were sent to the phone, and the log.
func post(t *testing.T, limits *Limits, body string) (answer *httptest.ResponseRecorder, sent int, log string) {
	t.Helper()
	var logged strings.Builder
	gateway := new(Gateway)
	service := NewSignup(limits, gateway, slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	answer = httptest.NewRecorder()
	service.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/signup", strings.NewReader(body)))
	for _, n := range gateway.Sent() {
		sent += n
	}
	return answer, sent, logged.String()
}

func limitsThat(t *testing.T, answer http.HandlerFunc) *Limits {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return NewLimits(server.URL + "/")
}

func TestAnAllowedCodeIsSent(t *testing.T) {
	var asked, path, kind string
	limits := limitsThat(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked += string(body)
		path += r.Method + " " + r.URL.Path + " "
		kind = r.Header.Get("Content-Type")
		_, _ = io.WriteString(w, `{"allowed": true, "reservation": "r"}`)
	})
	answer, sent, _ := post(t, limits, `{"phone": "`+typedPhone+`"}`)
	if answer.Code != http.StatusAccepted || sent != 1 {
		t.Errorf("status %d, %d sent", answer.Code, sent)
	}
	const demands = `{"demands":[{"policy":"sms-send","identifier":"+447700900123"},{"policy":"sms-budget","identifier":"all","cost":40}],`
	const want = demands + `"reserve_ms":10000}` + demands + `"reservation":"r"}`
	if asked != want || path != "POST /v1/check POST /v1/record " || kind != "application/json" {
		t.Errorf("asked %s as %s with %s", path, kind, asked)
	}
}

// No code is sent unless ratelimitd allows it.
func TestWithoutAYesNoCodeIsSent(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		want       int
		wantRetry  string
	}{
		"denied":                      {http.StatusTooManyRequests, "27", http.StatusTooManyRequests, "27"},
		"denied for ever":             {http.StatusTooManyRequests, "", http.StatusTooManyRequests, ""},
		"store down":                  {http.StatusServiceUnavailable, "1", http.StatusServiceUnavailable, "1"},
		"failed":                      {http.StatusInternalServerError, "", http.StatusServiceUnavailable, "5"},
		"no such policy":              {http.StatusNotFound, "", http.StatusServiceUnavailable, "5"},
		"a success that is no answer": {http.StatusNoContent, "", http.StatusServiceUnavailable, "5"},
		"nonsense":                    {http.StatusOK, "", http.StatusServiceUnavailable, "5"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := limitsThat(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
			})
			answer, sent, log := post(t, limits, `{"phone": "`+typedPhone+`"}`)
			if answer.Code != c.want || answer.Header().Get("Retry-After") != c.wantRetry || sent != 0 {
				t.Errorf("status %d, Retry-After %q, %d sent; want %d, %q, none",
					answer.Code, answer.Header().Get("Retry-After"), sent, c.want, c.wantRetry)
			}
			if strings.Contains(log, "900123") {
				t.Errorf("the log contains the number:\n%s", log)
			}
		})
	}
}

func TestWithoutAnAnswerNoCodeIsSent(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	release := make(chan struct{})
	slow := limitsThat(t, func(http.ResponseWriter, *http.Request) { <-release })
	slow.client.Timeout = 20 * time.Millisecond
	t.Cleanup(func() { close(release) })
	for name, limits := range map[string]*Limits{"gone": NewLimits(gone.URL), "slow": slow} {
		t.Run(name, func(t *testing.T) {
			answer, sent, log := post(t, limits, `{"phone": "`+typedPhone+`"}`)
			if answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") != "5" || sent != 0 {
				t.Errorf("status %d, Retry-After %q, %d sent", answer.Code, answer.Header().Get("Retry-After"), sent)
			}
			if !strings.Contains(log, "no code is sent without a decision") || strings.Contains(log, "900123") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

func TestABadBodyIsRefused(t *testing.T) {
	limits := limitsThat(t, func(http.ResponseWriter, *http.Request) { t.Error("ratelimitd was asked") })
	long := strings.Repeat("0", maxBody)
	for _, body := range []string{``, `{}`, `[]`, `{"phone": 447700900123}`, `{"phone": "me"}`, `{"phone": "` + long + `"}`} {
		answer, sent, _ := post(t, limits, body)
		if answer.Code != http.StatusBadRequest || sent != 0 {
			t.Errorf("%.40s: status %d, %d sent", body, answer.Code, sent)
		}
	}
}
