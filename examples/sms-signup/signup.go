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
	policySMS    = "sms-send"   // of a number
	policyBudget = "sms-budget" // of all
)

// price is what the gateway takes for a message, in thousandths of a EUR, as the budget counts
// them. One with a price for each country looks it up here.
const price = 40

// demandsOf returns what a code to phone takes. In one call, neither counts without the other.
func demandsOf(phone Phone) []Demand {
	return []Demand{
		{Policy: policySMS, Identifier: string(phone)},
		{Policy: policyBudget, Identifier: "all", Cost: price},
	}
}

// Signup serves POST /signup {"phone"}: it sends the number a code, unless too
// many were sent to it already, or the budget of the day is spent. One that the gateway does
// not take, or loses, does not count. It never sends one that ratelimitd has not allowed: when
// that is out of order, nobody can sign up for a while, which is cheaper than messages without
// limit.
type Signup struct {
	limits  *Limits
	gateway *Gateway
	log     *slog.Logger
	mux     *http.ServeMux

	receipts receipts
}

// NewSignup returns a service that asks limits and sends by gateway.
func NewSignup(limits *Limits, gateway *Gateway, log *slog.Logger) *Signup {
	s := &Signup{limits: limits, gateway: gateway, log: log, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /signup", s.signup)
	s.mux.HandleFunc("POST "+insteadPath, s.call)
	s.mux.HandleFunc("POST /delivery", s.delivery)
	return s
}

// ServeHTTP answers one request.
func (s *Signup) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// undecidedRetry is what callers are told when there was no decision and
// ratelimitd does not say when there will be.
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
	if err != nil { // what is held is free again soon
		s.log.Warn("a code that was allowed is not sent", "error", err)
		answer(w, http.StatusBadGateway, holdFor+time.Second, "the code could not be sent")
		return
	}
	s.settle(r.Context(), phone, held.Reservation, message)
	answer(w, http.StatusAccepted, 0, "a code is on its way")
}

// undecided answers that there was no decision, because of err: no code is sent.
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

// makeCall has a code read out to phone.
func (s *Signup) makeCall(r *http.Request, phone Phone) error {
	code, err := newCode()
	if err != nil {
		return err
	}
	return s.gateway.Call(r.Context(), phone, code)
}

// maxBody is far more than a body with a number takes, in bytes.
const maxBody = 1 << 10

// decodePhone reads {"phone": "..."}. The error tells nothing of the body.
func decodePhone(w http.ResponseWriter, r *http.Request) (Phone, error) {
	var body struct {
		Phone string `json:"phone"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&body); err != nil {
		return "", errors.New(`send {"phone": "..."} as JSON`)
	}
	return ParsePhone(body.Phone)
}

// answer writes message as JSON. wait goes into Retry-After when it is not 0.
func answer(w http.ResponseWriter, status int, wait time.Duration, message string) {
	answerWith(w, status, wait, map[string]string{"message": message})
}

// answerWith is answer for a document.
func answerWith(w http.ResponseWriter, status int, wait time.Duration, document map[string]string) {
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(document) // it fails when the client is gone
}
