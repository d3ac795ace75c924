package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// The policies of calls, in policies.yaml.
const (
	policyCall       = "call-send"   // of a number
	policyCallBudget = "call-budget" // of all
)

// callPrice is the price of a call that reads out a code, in thousandths of a EUR.
const callPrice = 90

// insteadPath is the path for a caller whose code was denied.
const insteadPath = "/signup/call"

// solvesChallenge pretends to ask the provider of a challenge, such as a CAPTCHA, whether it was solved.
func solvesChallenge(answer string) bool { return answer == "solved" }

// denied answers that no code is sent, and offers the same alternative whatever denied it.
func denied(w http.ResponseWriter, wait time.Duration) {
	answerWith(w, http.StatusTooManyRequests, wait, map[string]string{
		"message": "no code can be sent to this number at the moment", "instead": insteadPath,
	})
}

// call serves POST /signup/call {"phone": "...", "challenge": "..."}: a caller that solved a challenge gets the code in a call. Calls
// have policies of their own. So numbers whose codes an attacker has used up can still sign up, and the cost of calls is bounded,
// whatever happens to messages.
func (s *Signup) call(w http.ResponseWriter, r *http.Request) {
	var body struct{ Phone, Challenge string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&body); err != nil {
		answer(w, http.StatusBadRequest, 0, `send {"phone": "...", "challenge": "..."} as JSON`)
		return
	}
	phone, err := ParsePhone(body.Phone)
	if err != nil {
		answer(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	if !solvesChallenge(body.Challenge) { // checked before any take, so that a failed attempt costs the number nothing
		answer(w, http.StatusForbidden, 0, "solve the challenge first")
		return
	}
	taken, err := s.limits.Take(r.Context(), []Demand{
		{Policy: policyCall, Identifier: string(phone)},
		{Policy: policyCallBudget, Identifier: "all", Cost: callPrice},
	})
	if err != nil {
		s.undecided(w, err)
		return
	}
	if !taken.Allowed {
		answer(w, http.StatusTooManyRequests, taken.RetryAfter, "no call can be made to this number at the moment")
		return
	}
	if err := s.makeCall(r, phone); err != nil {
		if refund := s.limits.Refund(r.Context(), taken.Receipt); refund != nil { // the unit stays counted, which is safe
			err = errors.Join(err, refund)
		}
		s.log.Warn("a call that was allowed is not made", "error", err)
		answer(w, http.StatusBadGateway, time.Second, "the call could not be made")
		return
	}
	answer(w, http.StatusAccepted, 0, "the phone will ring")
}
