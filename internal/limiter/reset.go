package limiter

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

// Reset forgets what was counted for id under policy, for every instance as soon
// as it returns nil; not what was counted for parts of it under others. Blocks of id, and what instances count for themselves, end on
// this instance then and on others within a second.
func (e *Engine) Reset(ctx context.Context, policy string, id keys.Identifier) error {
	p, id, _, err := e.planOf(policy, id)
	if err != nil {
		return err
	}
	if _, err := e.decider.Instant(); err != nil { // before anything is forgotten here
		return &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, e.settings.StoreTimeout)
	defer cancel()
	t := p.Of(id)
	if err := e.forget(ctx, &t); err != nil {
		return err
	}
	return e.tellReset(ctx, &t)
}

// forget forgets what is counted for t. The error is a StoreError.
func (e *Engine) forget(ctx context.Context, t *demand.Target) error {
	if e.local != nil {
		local := t.As(t.Plan.Local)
		if err := e.local.Reset(ctx, &local); err != nil {
			return err
		}
	}
	if err := e.decider.Reset(ctx, t); err != nil {
		return err
	}
	if e.InMemory() {
		e.passMilli()
	}
	return nil
}

// passMilli waits until the millisecond is over that a reset is dated: what comes within it is
// dated later, and would be told to wait for longer than its window.
func (e *Engine) passMilli() {
	now := e.settings.Timing.Time()
	time.Sleep(now.Truncate(time.Millisecond).Add(time.Millisecond).Sub(now))
}
