package main

import (
	"context"
	"fmt"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/client"
)

// goClient asks by the public Go client, which all callers share, as the goroutines of a service would. What the client
// uses of the processor is the load's.
type goClient struct {
	client *client.Client
	policy string
	cost   int64
}

// Take implements load.Caller for one key. A call that fails leaves the client as it was.
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

// Close does nothing: the client is the others' too.
func (g goClient) Close() error { return nil }

// byClient returns what opens callers of the instance at address that share a Go client.
func (s *subject) byClient(address, policy string) (func(cost int64) (load.Caller, error), error) {
	c, err := client.New("http://"+address, &client.Options{Timeout: patience})
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, c)
	return func(cost int64) (load.Caller, error) { return goClient{c, policy, cost}, nil }, nil
}
