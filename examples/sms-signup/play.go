package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Bounds of a play.
const (
	defaultOver = 40 * time.Second // so that a cooldown of 30 s ends within it
	atOnce      = 32               // sign-ups under way at the same time
	overtime    = 2 * time.Minute  // after this a play ends, finished or not
)

// play lets the crowd sign up, and prints the results. The error says what
// should not have happened: above all, more codes than the limits allow.
func (s *settings) play(ctx context.Context, stdout io.Writer) error {
	r, err := s.perform(ctx, slog.New(slog.DiscardHandler)) // the report counts what the service would log
	if err != nil {
		return err
	}
	r.print(stdout)
	return r.check()
}

// perform runs the service on a free port and lets the crowd sign up.
func (s *settings) perform(ctx context.Context, log *slog.Logger) (*report, error) {
	limits := NewLimits(s.ratelimitd)
	if s.patience > 0 {
		limits.client.Timeout = s.patience
	}
	rules, err := rulesOf(ctx, limits)
	if err != nil {
		return nil, fmt.Errorf("asking %s for policy %s: %w", s.ratelimitd, policySMS, err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	gateway, ended := &Gateway{Refuse: s.refuse, Lose: s.lose}, make(chan error, 1)
	go func() { ended <- serveUntil(running, listener, NewSignup(limits, gateway, log)) }()
	visits, target := newCrowd(s.seed, s.over)
	r := &report{rules: rules, seed: s.seed, over: s.over, target: target, visits: visits}
	start := time.Now()
	url := "http://" + listener.Addr().String()
	r.results = act(ctx, url, visits, s.over+overtime)
	r.took = time.Since(start)
	r.sent, r.lost = gateway.Sent(), gateway.Lost()
	err = tell(ctx, url, r.lost)
	stop()
	return r, errors.Join(err, <-ended)
}

// tell lets the gateway report that these messages did not arrive.
func tell(ctx context.Context, url string, lost []string) error {
	client := &http.Client{Timeout: requestTimeout}
	defer client.CloseIdleConnections()
	for _, message := range lost {
		body := strings.NewReader(fmt.Sprintf(`{"message": %q, "delivered": false}`, message))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/delivery", body)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("reporting that %s was lost: status %d", message, resp.StatusCode)
		}
	}
	return nil
}

// result is the answer to one visit.
type result struct {
	status     int // 0: no answer
	retryAfter time.Duration
	took       time.Duration
}

// act makes all visits at their times, and returns their results in the same
// order. It ends within the time given, with no result for the visits left.
func act(ctx context.Context, url string, visits []visit, within time.Duration) []result {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: requestTimeout}
	results := make([]result, len(visits))
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for i := range next {
				results[i] = signUp(ctx, client, url, visits[i].typed)
			}
		})
	}
	start := time.Now()
	for i := range visits {
		if !waitUntil(ctx, start.Add(visits[i].at)) {
			break
		}
		next <- i
	}
	close(next)
	all.Wait()
	return results
}

// waitUntil returns true at t, or false if ctx ends before that.
func waitUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func signUp(ctx context.Context, client *http.Client, url, typed string) result {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/signup", strings.NewReader(fmt.Sprintf(`{"phone": %q}`, typed)))
	if err != nil {
		return result{}
	}
	start := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return result{took: time.Since(start)}
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return result{status: resp.StatusCode, retryAfter: retryAfter(resp.Header), took: time.Since(start)}
}

// rule is one limit of the policy in force.
type rule struct {
	Name     string `json:"name"`
	Limit    int    `json:"limit"`
	WindowMS int64  `json:"window_ms"`
}

// most returns how many codes the limit allows one number in d: its limit in the
// first window, and again in each that has begun since.
func (r rule) most(d time.Duration) int {
	return r.Limit * int(1+d.Milliseconds()/r.WindowMS)
}

// rulesOf returns the limits under which codes are sent.
func rulesOf(ctx context.Context, limits *Limits) ([]rule, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, limits.url+"/v1/policies/"+policySMS, nil)
	if err != nil {
		return nil, err
	}
	resp, err := limits.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &Undecided{Status: resp.StatusCode}
	}
	var policy struct {
		Limits []rule `json:"limits"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&policy); err != nil {
		return nil, err
	}
	if len(policy.Limits) == 0 {
		return nil, errors.New("the policy has no limits")
	}
	return policy.Limits, nil
}
