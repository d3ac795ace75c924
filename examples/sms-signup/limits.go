package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limits asks ratelimitd. It is safe for concurrent use; make one with NewLimits.
type Limits struct {
	url    string
	client *http.Client
}

// Bounds of a call.
const (
	// limitsTimeout is well over ratelimitd's own --store-timeout of 500 ms, so
	// that its answer about a slow store arrives, and short enough for a person.
	limitsTimeout = 2 * time.Second
	// maxIdle keeps as many connections as there are calls under way at a time;
	// net/http keeps two, and would open and close one for nearly every other.
	maxIdle = 64
	// maxAnswer is far more than a decision takes, in bytes.
	maxAnswer = 64 << 10
)

// NewLimits returns a client for the ratelimitd at url.
func NewLimits(url string) *Limits {
	transport := &http.Transport{MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: time.Minute}
	return &Limits{url: strings.TrimSuffix(url, "/"), client: &http.Client{Timeout: limitsTimeout, Transport: transport}}
}

// Answer is ratelimitd's answer to one call.
type Answer struct {
	Allowed     bool
	RetryAfter  time.Duration // when denied, in whole seconds; 0: waiting would not help
	Reservation string        // of held units; empty: none
	Receipt     string        // for recorded units; empty: none
}

// Undecided is the error of a call that ratelimitd answered neither by allowing nor
// by denying it.
type Undecided struct {
	Status     int
	RetryAfter time.Duration // 0: ratelimitd did not say
}

// Error names the status; the answer itself is not repeated.
func (u *Undecided) Error() string {
	return fmt.Sprintf("ratelimitd answered with status %d", u.Status)
}

// question is the body of a request.
type question struct {
	Demands     []Demand `json:"demands,omitempty"`
	ReserveMS   int64    `json:"reserve_ms,omitempty"`
	Reservation string   `json:"reservation,omitempty"`
	Receipt     string   `json:"receipt,omitempty"`
}

// Demand asks for units of a policy.
type Demand struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier"`
	Cost       int64  `json:"cost,omitempty"` // 0: one unit
}

// Reserve holds the units of demands for a time, if all of their limits allow it. The error is an
// *Undecided, or says why there was no answer. Neither contains an identifier.
func (l *Limits) Reserve(ctx context.Context, demands []Demand, hold time.Duration) (Answer, error) {
	return l.ask(ctx, "check", question{Demands: demands, ReserveMS: hold.Milliseconds()})
}

// Settle counts the units of reservation: once, however often it is repeated. If nothing could
// be held, as under a policy that is off, it counts the units of demands.
func (l *Limits) Settle(ctx context.Context, demands []Demand, reservation string) (Answer, error) {
	return l.ask(ctx, "record", question{Demands: demands, Reservation: reservation})
}

// Take counts the units of demands, if all of their limits allow it. Its errors are those of Reserve.
func (l *Limits) Take(ctx context.Context, demands []Demand) (Answer, error) {
	return l.ask(ctx, "take", question{Demands: demands})
}

// Refund gives back the units of receipt, once.
func (l *Limits) Refund(ctx context.Context, receipt string) error {
	_, err := l.ask(ctx, "refund", question{Receipt: receipt})
	return err
}

func (l *Limits) ask(ctx context.Context, route string, q question) (Answer, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/"+route, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	// A body that was read to its end leaves the connection for the next call.
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{}, err
	}
	switch wait := retryAfter(resp.Header); resp.StatusCode {
	case http.StatusOK:
		answer := Answer{Allowed: true}
		return answer, json.Unmarshal(text, &answer)
	case http.StatusTooManyRequests:
		return Answer{RetryAfter: wait}, nil
	default:
		return Answer{}, &Undecided{Status: resp.StatusCode, RetryAfter: wait}
	}
}

// retryAfter reads Retry-After in seconds; 0 without the header.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
