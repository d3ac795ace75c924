package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// callFor asks for a call to phone, with a solved challenge.
func callFor(phone string) string { return fmt.Sprintf(`{"phone": %q, "challenge": "solved"}`, phone) }

// TestACallInstead checks that a caller whose code is denied is offered a call, whatever denied it, and gets it
// after a challenge: as many calls as the number's own limit allows, and none without the challenge.
func TestACallInstead(t *testing.T) {
	s := openShop(t, new(Gateway))
	s.wants(t, 0, typedPhone, http.StatusAccepted)
	refused := s.post("/signup", `{"phone": "`+typedPhone+`"}`)
	var told struct{ Instead string }
	if err := json.Unmarshal(refused.Body.Bytes(), &told); err != nil || refused.Code != http.StatusTooManyRequests || told.Instead == "" {
		t.Fatalf("status %d, %v: %s", refused.Code, err, refused.Body)
	}
	for _, body := range []string{`{"phone": "` + typedPhone + `"}`, `{"phone": "` + typedPhone + `", "challenge": "guessed"}`} {
		if got := s.post(told.Instead, body); got.Code != http.StatusForbidden {
			t.Errorf("%s: status %d", body, got.Code)
		}
	}
	for _, body := range []string{`[]`, callFor("me")} {
		if got := s.post(told.Instead, body); got.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d", body, got.Code)
		}
	}
	for i, want := range []int{http.StatusAccepted, http.StatusAccepted, http.StatusAccepted, http.StatusTooManyRequests} {
		if got := s.post(told.Instead, callFor(typedPhone)); got.Code != want {
			t.Errorf("call %d: status %d, want %d: %s", i+1, got.Code, want, got.Body)
		}
	}
	phone, err := ParsePhone(typedPhone)
	if err != nil || s.gateway.Calls()[phone] != 3 || s.gateway.Sent()[phone] != 1 {
		t.Errorf("%v calls, %v messages, %v", s.gateway.Calls(), s.gateway.Sent(), err)
	}
	s.wants(t, time.Minute, typedPhone, http.StatusAccepted) // calls did not use up messages
}

// TestCallsHaveABudgetOfTheirOwn checks that all numbers together get as many calls as the budget pays for, that a call which
// is not made costs nothing, and that messages are still sent.
func TestCallsHaveABudgetOfTheirOwn(t *testing.T) {
	const budget = 450_000 / callPrice
	s := openShop(t, &Gateway{Refuse: budget / 2})
	made, failed := 0, 0
	for i := 0; made <= budget; i++ {
		got := s.post(insteadPath, callFor(fmt.Sprintf("+44 7700 9%05d", i)))
		if got.Code == http.StatusTooManyRequests {
			break
		}
		switch got.Code {
		case http.StatusAccepted:
			made++
		case http.StatusBadGateway:
			failed++
		default:
			t.Fatalf("status %d: %s", got.Code, got.Body)
		}
	}
	if made != budget || failed == 0 {
		t.Errorf("%d calls, want %d; %d failed", made, budget, failed)
	}
	s.wants(t, 0, typedPhone, http.StatusAccepted)
}

// TestWithoutADecisionThereIsNoCall checks that calls are as safe as messages.
func TestWithoutADecisionThereIsNoCall(t *testing.T) {
	limits := limitsThat(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	s := openShop(t, new(Gateway))
	s.limits = limits
	if got := s.post(insteadPath, callFor(typedPhone)); got.Code != http.StatusServiceUnavailable || len(s.gateway.Calls()) > 0 {
		t.Errorf("status %d, %v calls", got.Code, s.gateway.Calls())
	}
}
