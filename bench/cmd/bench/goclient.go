package main

import (
	"context"
	"fmt"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/client"
)

// goClient calls through the public Go client, which all callers share like the goroutines of a service. The client's
// processor time counts as the load's.
type goClient struct {
	client *client.Client
	policy string
	cost   int64
}

// Take implements load.Caller for one key. A failed call does not change the client.
func (g goClient) Take(keys []uint64) (load.Outcome, error) {
	decision, err := g.client.Take(context.Background(), client.Demand{
		Policy: g.policy, Identifier: fmt.Sprintf("%s%09d", prefix, keys[0]), Cost: g.cost,
	})
	switch {
	case err != nil:
		return load.Outcome{Failed: 1}, nil
	case decision.Allowed:
		return load.Outcome{Allowed: 1}, nil
	}
	return load.Outcome{Denied: 1}, nil
}

// Close does nothing, because the client is shared.
func (g goClient) Close() error { return nil }

// byClient returns a function that opens callers of the instance at address, which share a Go client.
func (s *subject) byClient(address, policy string) (func(cost int64) (load.Caller, error), error) {
	c, err := client.New("http://"+address, &client.Options{Timeout: patience})
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, c)
	return func(cost int64) (load.Caller, error) { return goClient{c, policy, cost}, nil }, nil
}
