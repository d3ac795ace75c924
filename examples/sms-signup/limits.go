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

// Bounds of a question.
const (
	// limitsTimeout is well over ratelimitd's own --store-timeout of 500 ms, so
	// that its answer about a slow store arrives, and short enough for a person.
	limitsTimeout = 2 * time.Second
	// maxIdle keeps connections for as many questions as are under way at a time;
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

// Answer is what ratelimitd says to one question.
type Answer struct {
	Allowed    bool
	RetryAfter time.Duration // when denied, in whole seconds; 0: waiting would not help
}

// Undecided is the error of a question that ratelimitd answered with neither yes
// nor no.
type Undecided struct {
	Status     int
	RetryAfter time.Duration // 0: ratelimitd did not say
}

// Error names the status; the answer itself is not repeated.
func (u *Undecided) Error() string {
	return fmt.Sprintf("ratelimitd answered with status %d", u.Status)
}

// Take counts one use by identifier under policy, if its limits allow. The error
// is an *Undecided, or says why there was no answer; neither tells identifier.
func (l *Limits) Take(ctx context.Context, policy, identifier string) (Answer, error) {
	body, err := json.Marshal(map[string]string{"policy": policy, "identifier": identifier})
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+"/v1/take", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	// The status and Retry-After say all; what is read to its end leaves the connection for the next question.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	switch wait := retryAfter(resp.Header); resp.StatusCode {
	case http.StatusOK:
		return Answer{Allowed: true}, nil
	case http.StatusTooManyRequests:
		return Answer{RetryAfter: wait}, nil
	default:
		return Answer{}, &Undecided{Status: resp.StatusCode, RetryAfter: wait}
	}
}

// retryAfter reads Retry-After in seconds; 0 when there is none.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}
