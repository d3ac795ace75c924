package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

// shop is a service over a real ratelimitd in memory, with this example's policies and a
// clock that the test sets.
type shop struct {
	*Signup
	*ratelimittest.Server
	gateway *Gateway
}

func openShop(t *testing.T, gateway *Gateway) *shop {
	t.Helper()
	policies, err := os.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	server := ratelimittest.New(t, string(policies))
	server.SetTime(time.Now())
	limits := NewLimits(server.URL)
	limits.client.Timeout = time.Minute // for busy machines
	return &shop{NewSignup(limits, gateway, slog.New(slog.DiscardHandler)), server, gateway}
}

func (s *shop) post(path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return w
}

// wants fails the test unless a sign-up with phone, after a while, gets this status.
func (s *shop) wants(t *testing.T, after time.Duration, phone string, status int) {
	t.Helper()
	s.Advance(after)
	if got := s.post("/signup", `{"phone": "`+phone+`"}`); got.Code != status {
		t.Errorf("%v later: status %d, want %d: %s", after, got.Code, status, got.Body)
	}
}

// TestARefusedCodeDoesNotCount checks that a refused code counts only until its hold ends.
func TestARefusedCodeDoesNotCount(t *testing.T) {
	s := openShop(t, &Gateway{Refuse: 2})
	s.wants(t, 0, typedPhone, http.StatusAccepted)
	s.wants(t, 0, "+44 7700 900124", http.StatusBadGateway)
	s.wants(t, time.Second, "+44 7700 900124", http.StatusTooManyRequests) // held
	s.wants(t, holdFor, "+44 7700 900124", http.StatusAccepted)
	s.wants(t, 20*time.Second, "+44 7700 900124", http.StatusTooManyRequests)
}

// TestALostCodeIsRefunded checks that a lost code is refunded when it is reported, and only then.
func TestALostCodeIsRefunded(t *testing.T) {
	s := openShop(t, &Gateway{Lose: 2})
	s.wants(t, 0, typedPhone, http.StatusAccepted)
	s.wants(t, 0, "+44 7700 900124", http.StatusAccepted)
	s.wants(t, time.Second, "+44 7700 900124", http.StatusTooManyRequests)
	lost := s.gateway.Lost()
	if len(lost) != 1 || len(s.gateway.Sent()) != 1 {
		t.Fatalf("%v lost, %v sent", lost, s.gateway.Sent())
	}
	report := func(message string, delivered bool) int {
		body, err := json.Marshal(map[string]any{"message": message, "delivered": delivered})
		if err != nil {
			t.Fatal(err)
		}
		return s.post("/delivery", string(body)).Code
	}
	for i, want := range []int{http.StatusOK, http.StatusNotFound} { // it is refunded once
		if got := report(lost[0], false); got != want {
			t.Errorf("report %d: status %d, want %d", i, got, want)
		}
	}
	s.wants(t, 0, "+44 7700 900124", http.StatusAccepted)
	if got := report("message-1", true); got != http.StatusOK {
		t.Errorf("status %d", got)
	}
	s.wants(t, 0, typedPhone, http.StatusTooManyRequests) // a delivered code counts
	if got := s.post("/delivery", "lost!").Code; got != http.StatusBadRequest {
		t.Errorf("status %d", got)
	}
}

// TestACodeThatWasSentCountsInTheEnd checks that a sent code counts although recording it fails at first.
func TestACodeThatWasSentCountsInTheEnd(t *testing.T) {
	records, settled := 0, false
	limits := limitsThat(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/record" {
			if records++; records < settleTries {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			settled = true
		}
		_, _ = w.Write([]byte(`{"allowed": true, "reservation": "r", "receipt": "x"}`))
	})
	if answer, sent, _ := post(t, limits, `{"phone": "`+typedPhone+`"}`); answer.Code != http.StatusAccepted || sent != 1 || !settled {
		t.Errorf("status %d, %d sent, settled: %v", answer.Code, sent, settled)
	}
}

// TestTheBudgetIsOfAllNumbers checks that once the budget is spent, no number gets a code, and none is charged.
func TestTheBudgetIsOfAllNumbers(t *testing.T) {
	s := openShop(t, new(Gateway))
	limits := s.Client(nil)
	spent := client.Demand{Policy: policyBudget, Identifier: "all", Cost: 1_300_000 - price}
	if d, err := limits.Take(t.Context(), spent); err != nil || !d.Allowed {
		t.Fatalf("%+v, %v", d, err)
	}
	s.wants(t, 0, typedPhone, http.StatusAccepted)
	s.wants(t, time.Second, "+44 7700 900124", http.StatusTooManyRequests)
	d, err := limits.Check(t.Context(), client.Demand{Policy: policySMS, Identifier: "+447700900124"})
	if err != nil || d.Used != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	s.wants(t, 49*time.Hour, "+44 7700 900124", http.StatusAccepted)
}

// TestSpellings checks that ratelimitd counts all spellings of a number as one, from any client.
func TestSpellings(t *testing.T) {
	s := openShop(t, new(Gateway))
	for i, typed := range []string{"+44 7700 900123", "+44-7700-900-123", "+44 (0)7700 900123"} {
		held, err := s.limits.Reserve(t.Context(), demandsOf(Phone(typed)), holdFor)
		if err != nil || held.Allowed != (i == 0) {
			t.Errorf("%s: %+v, %v", typed, held, err)
		}
	}
}

// TestReceiptsAreBounded checks the bound, and that messages without a receipt are not kept.
func TestReceiptsAreBounded(t *testing.T) {
	var r receipts
	r.keep("a", "")
	if _, known := r.take("a"); known {
		t.Error("nothing is kept")
	}
	for i := range maxReceipts {
		r.keep(strconv.Itoa(i), "r")
	}
	r.keep("one too many", "r")
	if _, known := r.take("one too many"); known || len(r.of) != maxReceipts {
		t.Errorf("%d kept", len(r.of))
	}
}
