// Command redisrate serves decisions of redis_rate (GCRA in a Lua script) on a Redis, written like a typical user's service.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimitd/ratelimitd/bench/peers/wire"
	"github.com/ratelimitd/ratelimitd/bench/policy"
)

func main() {
	var policies policy.List
	flag.Var(&policies, "policy", "NAME=LIMIT/WINDOW, for each policy")
	address := flag.String("redis", "127.0.0.1:6379", "address of the Redis")
	pool := flag.Int("pool", 64, "maximum of connections to the Redis")
	replicas := flag.Int("wait", 0, "how many replicas must have a count before the answer (WAIT); 0: none")
	flag.Parse()
	client := redis.NewClient(&redis.Options{Addr: *address, PoolSize: *pool})
	if err := wire.Serve(wire.Handler(decider(client, policies, *replicas))); err != nil {
		fmt.Fprintln(os.Stderr, "redisrate:", err)
		os.Exit(1)
	}
}

// waitTimeout is how long replicas may take before the call fails.
const waitTimeout = 5 * time.Second

func decider(client *redis.Client, policies policy.List, replicas int) wire.Decider {
	limiter := redis_rate.NewLimiter(client)
	limits := make(map[string]redis_rate.Limit)
	for _, p := range policies {
		limits[p.Name] = redis_rate.Limit{Rate: int(p.Limit), Burst: int(p.Limit), Period: p.Window}
	}
	allow := func(ctx context.Context, r wire.Request, limit redis_rate.Limit) (*redis_rate.Result, error) {
		return limiter.AllowN(ctx, r.Policy+":"+r.Identifier, limit, int(r.Cost))
	}
	if replicas > 0 {
		allow = func(ctx context.Context, r wire.Request, limit redis_rate.Limit) (*redis_rate.Result, error) {
			return allowAndWait(ctx, client, r, limit, replicas)
		}
	}
	return func(ctx context.Context, r wire.Request) (wire.Answer, error) {
		limit, found := limits[r.Policy]
		if !found {
			return wire.Answer{}, wire.ErrUnknownPolicy
		}
		result, err := allow(ctx, r, limit)
		if err != nil {
			return wire.Answer{}, err
		}
		return wire.Answer{
			Allowed: result.Allowed > 0, Policy: r.Policy, Limit: int64(limit.Rate), Remaining: int64(result.Remaining),
			RetryAfterMS: max(0, result.RetryAfter.Milliseconds()), // -1 ns when allowed
		}, nil
	}
}

// allowAndWait decides, and waits until the replicas have the new count. WAIT covers only writes of its own connection.
func allowAndWait(
	ctx context.Context, client *redis.Client, r wire.Request, limit redis_rate.Limit, replicas int,
) (_ *redis_rate.Result, err error) {
	conn := client.Conn()
	defer func() { err = errors.Join(err, conn.Close()) }()
	result, err := redis_rate.NewLimiter(conn).AllowN(ctx, r.Policy+":"+r.Identifier, limit, int(r.Cost))
	if err != nil || result.Allowed == 0 {
		return result, err
	}
	n, err := conn.Wait(ctx, replicas, waitTimeout).Result()
	if err == nil && n < int64(replicas) {
		err = fmt.Errorf("%d of %d replicas have the count", n, replicas)
	}
	return result, err
}
