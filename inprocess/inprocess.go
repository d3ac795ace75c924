// Package inprocess decides in the caller's own process, under the same policies and with the same answers as
// ratelimitd: no server is needed. Counts are in memory, in a folder, or in a Cassandra cluster, where processes and
// servers with the same settings share them.
//
//	limits, err := inprocess.Open(ctx, policies, nil) // the text of a policies file
//	defer limits.Close()
//	d, err := limits.Take(ctx, client.Demand{Policy: "sms-send", Identifier: number})
//
// It imports the server's packages, which package client does not.
package inprocess

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/line"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// Limits decides calls. It has the methods of a client.Client, and is safe for concurrent use. Make one with Open.
type Limits struct {
	engine *limiter.Engine
	server *api.Server // decides batches
	store  *backend
	stop   func() error // ends the background work, and waits until it has ended
	closed chan struct{}
	lines  line.Lines // of Wait
}

// Open decides under policies, the text of a policies file. A nil opts means the zero Options. The error lists every
// mistake in policies, or says why the store can't be opened; ctx ends only the opening. If Cassandra can't be reached,
// Open returns no error: until it can, decisions follow on_store_error, and Ready returns the reason.
func Open(ctx context.Context, policies string, opts *Options) (*Limits, error) {
	parsed, err := policyfile.Parse("policies", []byte(policies))
	if err != nil {
		return nil, err
	}
	o := opts.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s, err := o.open(ctx, parsed)
	if err != nil {
		return nil, fmt.Errorf("ratelimitd: opening the store: %w", err)
	}
	return o.decide(ctx, parsed, s)
}

// decide starts deciding under policies over s. Earlier blocks and other signals are known when it returns or, if the
// store does not answer, as soon as it does.
func (o *Options) decide(ctx context.Context, policies []policy.Policy, s *backend) (*Limits, error) {
	l := &Limits{engine: limiter.New(s.store, o.engine(s)), store: s, closed: make(chan struct{})}
	if s.onMove != nil {
		s.onMove(l.engine.MoveTo)
	}
	if err := l.setPolicies(policies); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := l.engine.CatchUp(ctx); err != nil && o.Logger != nil && !errors.Is(err, store.ErrNotConnected) {
		o.Logger.Warn("overrides and blocks that were made before are not known yet", "error", err)
	}
	if err := o.agree(ctx, s, l.engine); err != nil {
		return nil, errors.Join(err, s.close())
	}
	l.server = api.New(l.engine, &api.Options{Logger: o.Logger})
	l.stop = s.runAfter(s.members.around(l.engine))
	return l, nil
}

// SetPolicies replaces the policies in force by policies, the text of a policies file. Counts stay if their limit keeps
// its name, algorithm and window. On an error, nothing changes.
func (l *Limits) SetPolicies(policies string) error {
	parsed, err := policyfile.Parse("policies", []byte(policies))
	if err != nil {
		return err
	}
	return l.setPolicies(parsed)
}

func (l *Limits) setPolicies(policies []policy.Policy) error {
	if l.store.canPromise != nil {
		if err := l.store.canPromise(policies); err != nil {
			return err
		}
	}
	return l.engine.SetPolicies(policies)
}

// Ready returns nil if the store answers, and the reason if it does not.
func (l *Limits) Ready(ctx context.Context) error {
	if l.store.ready == nil {
		return nil
	}
	return l.store.ready(ctx)
}

// Close writes the counts that are not stored yet, and closes the store. The error says that some could not be stored.
// Later calls return client.ErrClosed. It must be called once, after all calls have returned.
func (l *Limits) Close() error {
	close(l.closed)
	return errors.Join(l.stop(), l.store.close())
}

// Check asks whether demands would be allowed now, and records nothing.
func (l *Limits) Check(ctx context.Context, demands ...client.Demand) (client.Decision, error) {
	return l.Do(ctx, client.Call{Op: client.OpCheck, Demands: demands})
}

// Record records demands, whatever the limits, and returns the resulting counts.
func (l *Limits) Record(ctx context.Context, demands ...client.Demand) (client.Decision, error) {
	return l.Do(ctx, client.Call{Op: client.OpRecord, Demands: demands})
}

// Take checks and records demands as one step: all are recorded, or none is.
func (l *Limits) Take(ctx context.Context, demands ...client.Demand) (client.Decision, error) {
	return l.Do(ctx, client.Call{Op: client.OpTake, Demands: demands})
}

// Reserve checks demands and, if they are allowed, holds their units for the duration hold.
func (l *Limits) Reserve(ctx context.Context, hold time.Duration, demands ...client.Demand) (client.Decision, error) {
	return l.Do(ctx, client.Call{Op: client.OpCheck, Demands: demands, Reserve: hold})
}

// Settle records the units that a Reserve holds.
func (l *Limits) Settle(ctx context.Context, reservation string) (client.Decision, error) {
	return l.Do(ctx, client.Call{Op: client.OpRecord, Reservation: reservation})
}

// SettleAt records the units that each demand of a Reserve actually used, as that of a client.Client does.
func (l *Limits) SettleAt(ctx context.Context, reservation string, units int64) (client.Decision, error) {
	return l.Do(ctx, client.Settlement(reservation, units))
}

// Release frees at once the units that a Reserve holds.
func (l *Limits) Release(ctx context.Context, reservation string) error {
	return l.Refund(ctx, reservation)
}

// Wait takes demands as soon as their limits allow, as that of a client.Client does.
func (l *Limits) Wait(ctx context.Context, demands ...client.Demand) (d client.Decision, err error) {
	key := line.Key(demands, func(d client.Demand) (string, string) { return d.Policy, d.Identifier })
	why := l.lines.Do(ctx, key, func() (time.Duration, bool) {
		d, err = l.Take(ctx, demands...)
		return d.RetryAfter, err != nil || d.Allowed
	})
	if why != nil {
		return d, &client.CallError{Op: string(client.OpTake), Recorded: client.RecordedNo, Err: why}
	}
	return d, err
}

// Do makes one call that is not a confirm. Its error is a *client.CallError. A denial is not an error.
func (l *Limits) Do(ctx context.Context, call client.Call) (client.Decision, error) {
	if call.Op == client.OpConfirm {
		wrong := &client.Problem{Field: "op", Detail: "A confirm has no decision: use Confirm, or a Batch."}
		return client.Decision{}, &client.CallError{Op: string(call.Op), Recorded: client.RecordedYes, Err: wrong}
	}
	if err := l.refuses(ctx, &call); err != nil {
		return client.Decision{}, &client.CallError{Op: string(call.Op), Recorded: client.RecordedNo, Err: err}
	}
	asked := engineCall(&call)
	answer, err := l.engine.Do(ctx, &asked)
	if err != nil {
		return client.Decision{}, callError(&call, api.ProblemOf(&asked, answer.Recorded, err))
	}
	return decisionOf(&answer), nil
}

// refuses returns an error if call can't be decided at all.
func (l *Limits) refuses(ctx context.Context, call *client.Call) error {
	select {
	case <-l.closed:
		return client.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return call.Validate()
}

// maxBatch is the maximum number of calls in a batch, as in a server's.
const maxBatch = 1000

// Batch makes up to 1000 calls, and returns a result for each, in their order. Calls that share a policy and identifier
// are decided in their order. The error means that there are too many calls, or none.
func (l *Limits) Batch(ctx context.Context, calls []client.Call) ([]client.Result, error) {
	if len(calls) == 0 || len(calls) > maxBatch {
		wrong := &client.Problem{Field: "operations", Detail: fmt.Sprintf("A batch has 1 to %d calls.", maxBatch)}
		return nil, &client.CallError{Op: "batch", Recorded: client.RecordedNo, Err: wrong}
	}
	results := make([]client.Result, len(calls))
	var asked []limiter.Call
	var at []int
	for i := range calls {
		if calls[i].Op == client.OpConfirm {
			results[i].Err = l.confirmIn(ctx, &calls[i])
			continue
		}
		if err := l.refuses(ctx, &calls[i]); err != nil {
			results[i].Err = &client.CallError{Op: string(calls[i].Op), Recorded: client.RecordedNo, Err: err}
			continue
		}
		asked, at = append(asked, engineCall(&calls[i])), append(at, i)
	}
	for j, o := range l.server.Batch(ctx, asked) {
		switch i := at[j]; {
		case o.NotBegun && ctx.Err() != nil:
			results[i].Err = &client.CallError{Op: string(calls[i].Op), Recorded: client.RecordedNo, Err: ctx.Err()}
		case o.Problem != nil:
			results[i].Err = callError(&calls[i], o.Problem)
		default:
			results[i].Decision = decisionOf(&o.Answer)
		}
	}
	return results, nil
}

// Refund refunds, once, the units of receipt. Its error, a *client.CallError, wraps client.ErrNoReceipt if there is
// nothing to refund, or no longer.
func (l *Limits) Refund(ctx context.Context, receipt string) error {
	return l.other(ctx, "refund", func() error { return l.engine.Refund(ctx, receipt) })
}

// Confirm confirms, once, that the units of receipt were real. Its error, a *client.CallError, wraps
// client.ErrNoReceipt if the receipt was refunded or its window is over.
func (l *Limits) Confirm(ctx context.Context, receipt string) error {
	return l.other(ctx, "confirm", func() error {
		_, err := l.engine.Confirm(ctx, receipt)
		return err
	})
}

// confirmIn is Confirm for a call of a batch.
func (l *Limits) confirmIn(ctx context.Context, c *client.Call) error {
	if err := c.Validate(); err != nil {
		return &client.CallError{Op: string(c.Op), Recorded: client.RecordedYes, Err: err}
	}
	return l.Confirm(ctx, c.Receipt)
}

// Reset removes the counts of identifier under policy.
func (l *Limits) Reset(ctx context.Context, policy, identifier string) error {
	return l.other(ctx, "reset", func() error { return l.engine.Reset(ctx, policy, keys.Identifier(identifier)) })
}

// other does an operation that has no decision.
func (l *Limits) other(ctx context.Context, op string, do func() error) error {
	if err := l.refuses(ctx, &client.Call{Op: client.OpRecord, Reservation: "-"}); err != nil {
		return &client.CallError{Op: op, Recorded: client.RecordedNo, Err: err}
	}
	err := do()
	if err == nil {
		return nil
	}
	p := problemFrom(api.ProblemOf(nil, "", err))
	recorded := p.Recorded // empty for a refused receipt: whether its units count is not known
	if recorded == "" && op == "reset" {
		recorded = client.RecordedNo
	}
	return &client.CallError{Op: op, Recorded: recorded, Err: p}
}
