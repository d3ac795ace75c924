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

// callPrice is what a call costs that reads a code out, in thousandths of a EUR.
const callPrice = 90

// insteadPath is where a caller whose code was denied may go on.
const insteadPath = "/signup/call"

// solvesChallenge pretends to ask the provider of a challenge, such as a CAPTCHA, whether somebody solved it.
func solvesChallenge(answer string) bool { return answer == "solved" }

// denied answers that no code is sent, with another way that is the same whatever denied it.
func denied(w http.ResponseWriter, wait time.Duration) {
	answerWith(w, http.StatusTooManyRequests, wait, map[string]string{
		"message": "no code can be sent to this number at the moment", "instead": insteadPath,
	})
}

// call serves POST /signup/call {"phone": "...", "challenge": "..."}: who has solved a challenge gets the code by a call. Calls
// have policies of their own. So numbers whose codes an attacker has used up can still sign up, and what calls cost is bounded,
// whatever becomes of messages.
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
	if !solvesChallenge(body.Challenge) { // before any limit is asked: an attempt costs the number nothing
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
		if refund := s.limits.Refund(r.Context(), taken.Receipt); refund != nil { // it counts: the safe side
			err = errors.Join(err, refund)
		}
		s.log.Warn("a call that was allowed is not made", "error", err)
		answer(w, http.StatusBadGateway, time.Second, "the call could not be made")
		return
	}
	answer(w, http.StatusAccepted, 0, "the phone will ring")
}
