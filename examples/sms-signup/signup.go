package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"strconv"
	"time"
)

// The policies in policies.yaml.
const (
	policySMS    = "sms-send"   // for a number
	policyBudget = "sms-budget" // for all numbers together
)

// price is the gateway's price of a message, in thousandths of a EUR, the unit of the
// budget. If prices differ by country, look them up here.
const price = 40

// demandsOf returns the demands for a code to phone. In one call, neither counts without the other.
func demandsOf(phone Phone) []Demand {
	return []Demand{
		{Policy: policySMS, Identifier: string(phone)},
		{Policy: policyBudget, Identifier: "all", Cost: price},
	}
}

// Signup serves POST /signup {"phone"}: it sends the number a code, unless too
// many were sent to it already, or the budget of the day is spent. A code that the gateway does
// not accept, or loses, does not count. It never sends a code that ratelimitd has not allowed: if
// that is down, nobody can sign up for a while, which is cheaper than messages without a
// limit.
type Signup struct {
	limits  *Limits
	gateway *Gateway
	log     *slog.Logger
	mux     *http.ServeMux

	receipts receipts
}

// NewSignup returns a service that asks limits and sends codes through gateway.
func NewSignup(limits *Limits, gateway *Gateway, log *slog.Logger) *Signup {
	s := &Signup{limits: limits, gateway: gateway, log: log, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /signup", s.signup)
	s.mux.HandleFunc("POST "+insteadPath, s.call)
	s.mux.HandleFunc("POST /delivery", s.delivery)
	return s
}

// ServeHTTP answers one request.
func (s *Signup) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// undecidedRetry is the Retry-After if there was no decision and
// ratelimitd did not send one.
const undecidedRetry = 5 * time.Second

func (s *Signup) signup(w http.ResponseWriter, r *http.Request) {
	phone, err := decodePhone(w, r)
	if err != nil {
		answer(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	held, err := s.limits.Reserve(r.Context(), demandsOf(phone), holdFor)
	if err != nil {
		s.undecided(w, err)
		return
	}
	if !held.Allowed {
		denied(w, held.RetryAfter)
		return
	}
	message, err := s.send(r, phone)
	if err != nil { // the hold ends soon
		s.log.Warn("a code that was allowed is not sent", "error", err)
		answer(w, http.StatusBadGateway, holdFor+time.Second, "the code could not be sent")
		return
	}
	s.settle(r.Context(), phone, held.Reservation, message)
	answer(w, http.StatusAccepted, 0, "a code is on its way")
}

// undecided answers that there was no decision, because of err, so no code is sent.
func (s *Signup) undecided(w http.ResponseWriter, err error) {
	s.log.Warn("no code is sent without a decision", "error", err)
	wait := undecidedRetry
	if undecided := (*Undecided)(nil); errors.As(err, &undecided) && undecided.RetryAfter > 0 {
		wait = undecided.RetryAfter
	}
	answer(w, http.StatusServiceUnavailable, wait, "signing up is not possible at the moment")
}

const codes = 1_000_000 // of six digits

func newCode() (string, error) {
	code, err := rand.Int(rand.Reader, big.NewInt(codes))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%06d", code), nil
}

func (s *Signup) send(r *http.Request, phone Phone) (message string, err error) {
	code, err := newCode()
	if err != nil {
		return "", err
	}
	return s.gateway.Send(r.Context(), phone, code)
}

// makeCall lets the gateway read out a code to phone.
func (s *Signup) makeCall(r *http.Request, phone Phone) error {
	code, err := newCode()
	if err != nil {
		return err
	}
	return s.gateway.Call(r.Context(), phone, code)
}

// maxBody is far more than a body with a number needs, in bytes.
const maxBody = 1 << 10

// decodePhone reads {"phone": "..."}. The error repeats nothing of the body.
func decodePhone(w http.ResponseWriter, r *http.Request) (Phone, error) {
	var body struct {
		Phone string `json:"phone"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&body); err != nil {
		return "", errors.New(`send {"phone": "..."} as JSON`)
	}
	return ParsePhone(body.Phone)
}

// answer writes message as JSON. wait is sent as Retry-After unless it is 0.
func answer(w http.ResponseWriter, status int, wait time.Duration, message string) {
	answerWith(w, status, wait, map[string]string{"message": message})
}

// answerWith writes document as JSON; wait is as for answer.
func answerWith(w http.ResponseWriter, status int, wait time.Duration, document map[string]string) {
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // it fails if the client is gone
}
