// Command golimiter serves decisions of go-limiter's memory store: one process without persistence.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/ratelimitd/ratelimitd/bench/peers/wire"
	"github.com/ratelimitd/ratelimitd/bench/policy"
)

func main() {
	var policies policy.List
	flag.Var(&policies, "policy", "NAME=LIMIT/WINDOW, for each policy")
	flag.Parse()
	decide, err := decider(policies)
	if err == nil {
		err = wire.Serve(wire.Handler(decide))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "golimiter:", err)
		os.Exit(1)
	}
}

func decider(policies policy.List) (wire.Decider, error) {
	stores := make(map[string]limiter.Store)
	for _, p := range policies {
		store, err := memorystore.New(&memorystore.Config{Tokens: uint64(p.Limit), Interval: p.Window})
		if err != nil {
			return nil, err
		}
		stores[p.Name] = store
	}
	return func(ctx context.Context, r wire.Request) (wire.Answer, error) {
		store, found := stores[r.Policy]
		if !found {
			return wire.Answer{}, wire.ErrUnknownPolicy
		}
		return take(ctx, store, r)
	}, nil
}

// take takes one unit after the other, because go-limiter has no costs.
func take(ctx context.Context, store limiter.Store, r wire.Request) (wire.Answer, error) {
	answer := wire.Answer{Policy: r.Policy}
	for range r.Cost {
		limit, remaining, reset, ok, err := store.Take(ctx, r.Identifier)
		if err != nil {
			return wire.Answer{}, err
		}
		answer.Allowed, answer.Limit, answer.Remaining = ok, int64(limit), int64(remaining)
		if !ok {
			answer.RetryAfterMS = max(0, time.Until(time.Unix(0, int64(reset))).Milliseconds())
			break
		}
	}
	return answer, nil
}
