// Command redisrate serves decisions of redis_rate (GCRA in a Lua script) on a Redis, as a user of both would write it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/bench/peers/wire"
	"github.com/ratelimitd/ratelimitd/bench/policy"
)

func main() {
	var policies policy.List
	flag.Var(&policies, "policy", "NAME=LIMIT/WINDOW, for each policy")
	address := flag.String("redis", "127.0.0.1:6379", "address of the Redis")
	pool := flag.Int("pool", 64, "connections to the Redis at most")
	flag.Parse()
	client := redis.NewClient(&redis.Options{Addr: *address, PoolSize: *pool})
	if err := wire.Serve(wire.Handler(decider(client, policies))); err != nil {
		fmt.Fprintln(os.Stderr, "redisrate:", err)
		os.Exit(1)
	}
}

func decider(client *redis.Client, policies policy.List) wire.Decider {
	limiter := redis_rate.NewLimiter(client)
	limits := make(map[string]redis_rate.Limit)
	for _, p := range policies {
		limits[p.Name] = redis_rate.Limit{Rate: int(p.Limit), Burst: int(p.Limit), Period: p.Window}
	}
	return func(ctx context.Context, r wire.Request) (wire.Answer, error) {
		limit, found := limits[r.Policy]
		if !found {
			return wire.Answer{}, wire.ErrUnknownPolicy
		}
		result, err := limiter.AllowN(ctx, r.Policy+":"+r.Identifier, limit, int(r.Cost))
		if err != nil {
			return wire.Answer{}, err
		}
		return wire.Answer{
			Allowed: result.Allowed > 0, Policy: r.Policy, Limit: int64(limit.Rate), Remaining: int64(result.Remaining),
			RetryAfterMS: max(0, result.RetryAfter.Milliseconds()), // -1 ns when allowed
		}, nil
	}
}
