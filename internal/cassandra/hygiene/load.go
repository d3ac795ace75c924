package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

const (
	workers    = 48    // calls under way at most: a slow moment must not pile them up
	population = 20000 // identifiers that come again, by Zipf's law
	zipf       = 1.2

	attackEvery = 50 * time.Millisecond // of each instance, on one key of each policy
	probeEvery  = 250 * time.Millisecond
)

// kinds are what callers do, with how often of a hundred.
var kinds = []struct {
	often int
	do    func(*load, context.Context, *limiter.Engine)
}{
	{25, take(policyLog)},
	{2, take(policyEntered)},
	{26, take(policyFixed)},
	{6, take(policyTail)},
	{4, take(policyWindow)},
	{5, take(policyBoth)},
	{6, take(policyBucket)},
	{3, take(policyLeaky)},
	{6, take(policySerial)},
	{3, take(policyAttempts)},
	{3, take(policyBlock)},
	{4, (*load).refund},
	{3, (*load).reset},
	{2, (*load).reserve},
	{1, (*load).once},
	{1, (*load).ban},
}

// load is what callers ask of the instances.
type load struct {
	instances *instances
	rate      int
	latencies *latencies
	fresh     atomic.Int64 // identifiers that came for the first time
	calls     atomic.Int64
	failed    atomic.Int64
	lastError atomic.Pointer[string]
}

// run asks until ctx ends.
func (l *load) run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var beside errgroup.Group
	beside.Go(func() error { return l.instances.run(background) })
	var all sync.WaitGroup
	for range workers {
		all.Go(func() { l.work(ctx) })
	}
	for at := range l.instances.engines {
		all.Go(func() { l.attack(ctx, at) })
	}
	all.Go(func() { l.probe(ctx) })
	all.Wait()
	stop()
	return beside.Wait()
}

// work makes its share of the calls, one after the other.
func (l *load) work(ctx context.Context) {
	tick := time.NewTicker(time.Duration(workers) * time.Second / time.Duration(l.rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at := rand.IntN(100)
		for _, kind := range kinds {
			if at -= kind.often; at < 0 {
				kind.do(l, ctx, l.instances.engines[rand.IntN(len(l.instances.engines))])
				break
			}
		}
	}
}

// identifier returns one that never came before, seven times of eight, or one of the
// population.
func (l *load) identifier() keys.Identifier {
	if rand.IntN(8) > 0 {
		return l.newIdentifier()
	}
	return known()
}

func (l *load) newIdentifier() keys.Identifier {
	return keys.Identifier(fmt.Sprintf("+49151%08d", l.fresh.Add(1)))
}

var popular = struct {
	sync.Mutex
	*rand.Zipf
}{Zipf: rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), zipf, 1, population)}

func known() keys.Identifier {
	popular.Lock()
	defer popular.Unlock()
	return keys.Identifier(fmt.Sprintf("popular-%d", popular.Uint64()))
}

// do makes one call and notes whether it failed.
func (l *load) do(ctx context.Context, e *limiter.Engine, call *limiter.Call) limiter.Answer {
	answer, err := e.Do(ctx, call)
	l.note(ctx, err)
	return answer
}

func (l *load) note(ctx context.Context, err error) {
	l.calls.Add(1)
	if err != nil && ctx.Err() == nil {
		l.failed.Add(1)
		text := err.Error()
		l.lastError.Store(&text)
	}
}

func demand(policy string, id keys.Identifier) []limiter.Demand {
	return []limiter.Demand{{Policy: policy, Identifier: id}}
}

func take(policy string) func(*load, context.Context, *limiter.Engine) {
	return func(l *load, ctx context.Context, e *limiter.Engine) {
		l.do(ctx, e, &limiter.Call{Op: count.OpTake, Demands: demand(policy, l.identifier())})
	}
}

// anyPolicy returns the name of one that counts by events, by a counter or in a cell.
func anyPolicy() string {
	return []string{policyLog, policyFixed, policyBucket, policySerial}[rand.IntN(4)]
}

// refund takes, and gives back what it got.
func (l *load) refund(ctx context.Context, e *limiter.Engine) {
	answer := l.do(ctx, e, &limiter.Call{Op: count.OpTake, Demands: demand(anyPolicy(), l.identifier())})
	if answer.Receipt != "" {
		l.note(ctx, e.Refund(ctx, answer.Receipt))
	}
}

// reset forgets what a popular key has used.
func (l *load) reset(ctx context.Context, e *limiter.Engine) {
	l.note(ctx, e.Reset(ctx, anyPolicy(), known()))
}

// reserve holds a unit, and settles half of what it got.
func (l *load) reserve(ctx context.Context, e *limiter.Engine) {
	demands := demand(anyPolicy(), l.identifier())
	answer := l.do(ctx, e, &limiter.Call{Op: count.OpCheck, Demands: demands, Reserve: time.Second})
	if answer.Reservation != "" && rand.IntN(2) == 0 {
		l.do(ctx, e, &limiter.Call{Op: count.OpRecord, Demands: demands, Reservation: answer.Reservation})
	}
}

// once takes under an idempotency key, twice.
func (l *load) once(ctx context.Context, e *limiter.Engine) {
	call := &limiter.Call{Op: count.OpTake, Demands: demand(anyPolicy(), l.identifier())}
	call.IdempotencyKey = fmt.Sprint("call ", rand.Uint64())
	l.do(ctx, e, call)
	l.do(ctx, e, call)
}

// ban takes again and again for the identifier of this half minute, which is soon blocked
// for long: among changes that expire in seconds there are always some that stay.
func (l *load) ban(ctx context.Context, e *limiter.Engine) {
	const half = 30 * time.Second
	id := keys.Identifier(fmt.Sprint("ban ", time.Now().Truncate(half).Unix()))
	l.do(ctx, e, &limiter.Call{Op: count.OpTake, Demands: demand(policyBan, id)})
}

// attacked is the identifier that callers go on and on with, whatever they are answered.
const attacked = keys.Identifier("attacked")

// attack has instance at ask for the attacked key of every policy in turn.
func (l *load) attack(ctx context.Context, at int) {
	tick := time.NewTicker(attackEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		policy := policies[i%len(policies)].Name
		l.do(ctx, l.instances.engines[at], &limiter.Call{Op: count.OpTake, Demands: demand(policy, attacked)})
	}
}

// probe times takes of keys of three kinds, under three policies, one after the other.
func (l *load) probe(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, policy := range []string{policyLog, policyFixed, policyBucket} {
			l.time(ctx, policy, "fresh", l.newIdentifier())
			l.time(ctx, policy, "popular", "popular-0")
			l.time(ctx, policy, "attacked", attacked)
		}
	}
}

func (l *load) time(ctx context.Context, policy, key string, id keys.Identifier) {
	began := time.Now()
	l.do(ctx, l.instances.engines[0], &limiter.Call{Op: count.OpTake, Demands: demand(policy, id)})
	if ctx.Err() == nil {
		l.latencies.add(policy+" "+key, time.Since(began))
	}
}
