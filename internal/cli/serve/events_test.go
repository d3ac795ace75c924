package serve_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

const eventsSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// toldEvent is an event that a receiver was sent.
type toldEvent struct {
	Source, Type string
	Data         map[string]any
	text         string
}

// eventReceiver keeps the events that it is sent, and holds that they are signed.
type eventReceiver struct {
	url string

	mu   sync.Mutex
	told []toldEvent
}

func newEventReceiver(t *testing.T) *eventReceiver {
	t.Helper()
	r := new(eventReceiver)
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(eventsSecret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, sent *http.Request) {
		body, err := io.ReadAll(sent.Body)
		e := toldEvent{text: string(body)}
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", sent.Header.Get("webhook-id"), sent.Header.Get("webhook-timestamp"), body)
		want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if got := sent.Header.Get("webhook-signature"); err != nil || got != want {
			t.Errorf("%s: signature %q, want %q, error %v", body, got, want, err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.told = append(r.told, e)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// flags are those of a server that sends events to r.
func (r *eventReceiver) flags(t *testing.T, more ...string) []string {
	return append([]string{"--events-url=" + r.url, "--events-secret-file=" + clitest.Write(t, "events.secret", eventsSecret+"\n")}, more...)
}

// of returns the events of a type.
func (r *eventReceiver) of(of string) (found []toldEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.told {
		if e.Type == "ratelimitd."+of {
			found = append(found, e)
		}
	}
	return found
}

// await returns the first n events of a type, once there are so many.
func (r *eventReceiver) await(t *testing.T, of string, n int) (found []toldEvent) {
	t.Helper()
	waitUntil(t, func() bool { found = r.of(of); return len(found) >= n })
	return found
}

// texts returns all that r was sent.
func (r *eventReceiver) texts() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, e := range r.told {
		b.WriteString(e.text + "\n")
	}
	return b.String()
}

const eventPolicies = `policies:
  - name: sms
    limits: [{algorithm: sliding-log, limit: 100, window: 1h}]
    normalize: e164
    derive: [{policy: country, from: country}, {policy: range, from: {prefix: 4}}, {policy: new, from: country, when: denied}]
  - name: country
    limits: [{name: unconfirmed, algorithm: conversion, unconfirmed: 2, min_conversion: 72%, window: 27h}]
  - name: range
    limits: [{name: unconfirmed, algorithm: conversion, unconfirmed: {"+4366": 1, default: 50}, min_conversion: 72%, window: 27h}]
  - {name: new, limits: [{algorithm: sliding-log, limit: 10, window: 1h, until: confirmed}]}
  - {name: login, limits: [{name: per-hour, algorithm: sliding-log, limit: 1, window: 1h}], block_for: 1h}
`

// TestEvents has everything happen that a server tells of, and holds what it tells: each thing once, and no identifier.
func TestEvents(t *testing.T) {
	r, policies := newEventReceiver(t), clitest.Write(t, "p.yaml", eventPolicies)
	s := start(t, nil, r.flags(t, "--policies="+policies, "--namespace=shop")...)

	const phone, other, name = "+4915112345678", "+436641234567", "anna@example.org"
	for _, to := range []string{phone, phone, phone, other, other} { // the last ones are denied by country or range, and pass as new ones
		if got := s.TakeOf(t, "sms", to); got != http.StatusOK {
			t.Fatalf("take: status %d", got)
		}
	}
	for i, of := range r.await(t, "conversion.began", 2) {
		want := [][]any{{"country", "DE", nil}, {"range", nil, "+4366"}}[i] // the policy names the range
		if got := []any{of.Data["policy"], of.Data["country"], of.Data["name"]}; !slices.Equal(got, want) ||
			of.Data["limit"] != "unconfirmed" || !strings.HasPrefix(of.Source, "/ratelimitd/shop/") {
			t.Errorf("%+v, want %v", of, want)
		}
	}

	for range 30 {
		s.TakeOf(t, "login", name)
	}
	blocked := r.await(t, "block.made", 1)[0]
	if blocked.Data["policy"] != "login" || blocked.Data["strikes"] != 1.0 || blocked.Data["ends_at"] == nil ||
		blocked.Source != "/ratelimitd/shop" {
		t.Errorf("%+v", blocked)
	}
	if of := r.await(t, "denials.began", 1)[0].Data; of["policy"] != "login" || of["denied"] != of["calls"].(float64)-1 {
		t.Errorf("%+v", of)
	}
	asAdmin := func(method, path, body string) {
		t.Helper()
		q, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode > 299 {
			t.Fatalf("%s %s: status %d", method, path, resp.StatusCode)
		}
	}
	whom := `"policy": "login", "identifier": "` + name + `"`
	asAdmin(http.MethodPost, "/v1/reset", "{"+whom+"}")
	if freed := r.await(t, "block.ended", 1)[0]; freed.Data["key"] != blocked.Data["key"] {
		t.Errorf("%+v after %+v", freed, blocked)
	}
	asAdmin(http.MethodPost, "/v1/overrides", "{"+whom+
		`, "kind": "limits", "limits": [{"name": "per-hour", "limit": 5}], "expires_in_ms": 60000}`)
	asAdmin(http.MethodPost, "/v1/overrides", `{"policy": "sms", "prefix": "+4366", "kind": "block", "expires_in_ms": null}`)
	asAdmin(http.MethodPost, "/v1/overrides/delete", "{"+whom+"}")
	made := r.await(t, "override.made", 2)
	if one := made[0].Data; one["key"] != blocked.Data["key"] || one["kind"] != "limits" || one["by"] != "anonymous" ||
		!strings.Contains(made[0].text, `"limits":[{"name":"per-hour","limit":5}],"ends_at":"20`) {
		t.Errorf("%+v", one)
	}
	if one := made[1].Data; one["prefix"] != "+4366" || one["kind"] != "block" || one["ends_at"] != nil || one["key"] != nil {
		t.Errorf("%+v", one)
	}
	if ended := r.await(t, "override.ended", 1)[0]; ended.Data["key"] != blocked.Data["key"] || ended.Source != "/ratelimitd/shop" {
		t.Errorf("%+v", ended)
	}
	clitest.Rewrite(t, policies, eventPolicies+"  - {name: api, limits: [{algorithm: sliding-log, limit: 1, window: 1h}]}\n")
	if changed := r.await(t, "policies.changed", 1)[0]; fmt.Sprint(changed.Data["added"]) != "[api]" || changed.Data["by"] != "file" {
		t.Errorf("%+v", changed)
	}

	for _, kind := range []string{"conversion", "block", "override", "policies"} {
		s.WaitForMetric(t, `ratelimitd_events_total{kind="`+kind+`",outcome="sent"} `+
			map[string]string{"conversion": "2", "block": "2", "override": "3", "policies": "1"}[kind])
	}
	text := r.texts()
	for _, told := range []string{phone, phone[1:], phone[3:], other[1:], other[6:], name, "anna", "example.org"} {
		if strings.Contains(text, told) {
			t.Errorf("an identifier was told of:\n%s", text)
		}
	}
}

// TestEventOfDegradedDecisions is told where the store does not answer.
func TestEventOfDegradedDecisions(t *testing.T) {
	r := newEventReceiver(t)
	s := start(t, nil, r.flags(t, "--store=cassandra", "--cassandra-hosts=127.0.0.9:1",
		"--policies="+clitest.Write(t, "p.yaml", eventPolicies))...)
	if got := s.Take(t, "login"); got != http.StatusServiceUnavailable {
		t.Fatalf("take: status %d", got)
	}
	if told := r.await(t, "degraded.began", 1)[0]; fmt.Sprint(told.Data["policies"]) != "map[login:1]" {
		t.Errorf("%+v", told)
	}
}

// TestEventsOfSeveralInstances holds that one of two instances tells of what belongs to both: a version of the policies, an
// override, a block.
func TestEventsOfSeveralInstances(t *testing.T) {
	r := newEventReceiver(t)
	flags := r.flags(t, onCassandra(t, "--peer-listen=127.0.0.1:0")...)
	first, second := start(t, nil, flags...), start(t, nil, flags...)
	first.waitReady(t)
	second.waitReady(t)
	if version, status := putPolicies(t, first.URL, eventPolicies, `"0"`); version != 1 || status != http.StatusOK {
		t.Fatalf("version %d, status %d", version, status)
	}
	second.WaitForMetric(t, "ratelimitd_policies_version 1")
	for range 2 {
		first.Take(t, "login")
	}
	waitUntil(t, func() bool { // else it is denied there by its limit, and blocked once more
		code, _, _ := clitest.Execute(t, nil, "check", "login", "+4915112345678", "--server="+second.URL)
		return code != command.ExitOK && strings.Contains(second.Body(t, "/metrics"), `op="check",outcome="blocked",policy="login"`)
	})
	second.Take(t, "login")
	code, _, stderr := clitest.Execute(t, nil, "override", "set", "sms", "+4915112345678", "--block", "--for=1h", "--server="+second.URL)
	if code != command.ExitOK {
		t.Fatal(stderr)
	}
	waitUntil(t, func() bool { return first.TakeOf(t, "sms", "+4915112345678") == http.StatusTooManyRequests })
	first.Stop()
	second.Stop()
	first.Wait(t)
	second.Wait(t)
	for _, of := range []string{"policies.changed", "override.made", "block.made"} {
		if told := r.of(of); len(told) != 1 || strings.Count(told[0].Source, "/") != 2 { // which names no instance
			t.Errorf("%s is told %d times: %+v", of, len(told), told)
		}
	}
}

// TestReceiverThatIsGone holds that decisions do not wait for it, and that the end takes no longer than it may.
func TestReceiverThatIsGone(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer server.Close()
	defer close(hang)
	s := start(t, []string{command.EventsVariable + "=" + eventsSecret}, "--events-url="+server.URL,
		"--policies="+clitest.Write(t, "p.yaml", eventPolicies))
	for i := range 1500 { // each of whom is blocked: more than may wait
		who := fmt.Sprint("somebody ", i)
		s.TakeOf(t, "login", who)
		if got := s.TakeOf(t, "login", who); got != http.StatusTooManyRequests {
			t.Fatalf("status %d", got)
		}
	}
	s.WaitForMetric(t, `ratelimitd_events_waiting 100`)                            // and perhaps one of denials
	s.WaitForMetric(t, `ratelimitd_events_total{kind="block",outcome="lost"} 499`) // 1,000 wait, and one is being sent
	began := time.Now()
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK || time.Since(began) > clitest.Patience/2 {
		t.Errorf("exit code %d after %v", code, time.Since(began))
	}
	s.Log.WaitFor(t, "events are lost", 1)
}
