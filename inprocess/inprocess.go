// Package inprocess decides in the caller's own process, by the same policies and with the
// same answers as a ratelimitd: there is no server to run. Counts are in memory, in a folder,
// or in a Cassandra, where they are shared with all others that have the same settings,
// servers among them.
//
//	limits, err := inprocess.Open(ctx, policies, nil) // the text of a policies file
//	defer limits.Close()
//	d, err := limits.Take(ctx, client.Demand{Policy: "sms-send", Identifier: number})
//
// It brings the server's packages along, which package client does not.
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

// Limits decides. It has the methods of a client.Client, and is safe for concurrent use; make
// one with Open.
type Limits struct {
	engine *limiter.Engine
	server *api.Server // of batches
	store  *backend
	stop   func() error // ends the background work, and waits until it has ended
	closed chan struct{}
	lines  line.Lines // of Wait
}

// Open decides by policies, the text of a policies file. A nil opts means the zero Options. The error lists every
// mistake of policies, or says why the store can't be opened; ctx ends the opening only. A Cassandra that can't be
// reached does not: until it is, policies decide as their on_store_error says, and Ready returns the reason.
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

// decide decides by policies over s. It knows of earlier blocks and of other signals when it
// returns, unless the store does not answer: then it does as soon as the store answers.
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

// SetPolicies puts policies, the text of a policies file, in force in place of those before.
// Counts stay whose limit keeps its name, algorithm and window. It changes nothing on an error.
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

// Ready returns nil if the store answers, and else why it does not.
func (l *Limits) Ready(ctx context.Context) error {
	if l.store.ready == nil {
		return nil
	}
	return l.store.ready(ctx)
}

// Close writes the counts that are not stored yet, and closes the store; its error says that some could not be stored.
// Further calls give client.ErrClosed; it is to be called once, when no call is under way.
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

// Reserve checks demands and, if they are allowed, holds their units for so long.
func (l *Limits) Reserve(ctx context.Context, hold time.Duration, demands ...client.Demand) (client.Decision, error) {
	return l.Do(ctx, client.Call{Op: client.OpCheck, Demands: demands, Reserve: hold})
}

// Settle records the units that a Reserve holds.
func (l *Limits) Settle(ctx context.Context, reservation string) (client.Decision, error) {
	return l.Do(ctx, client.Call{Op: client.OpRecord, Reservation: reservation})
}

// SettleAt records the units that each demand of a Reserve used, like that of a client.Client.
func (l *Limits) SettleAt(ctx context.Context, reservation string, units int64) (client.Decision, error) {
	return l.Do(ctx, client.Settlement(reservation, units))
}

// Release frees at once the units that a Reserve holds.
func (l *Limits) Release(ctx context.Context, reservation string) error {
	return l.Refund(ctx, reservation)
}

// Wait takes demands as soon as their limits allow, as a client.Client's does.
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

// Do makes one call that is not a confirm. Its error is a *client.CallError: a denial is none.
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

// maxBatch is how many calls a batch has at most, as of a server.
const maxBatch = 1000

// Batch makes up to 1000 calls, and returns a result for each, in their order. Calls that
// share a policy and identifier are decided in their order. The error is of calls that are too
// many, or none.
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

// Refund refunds, once, the units of receipt. Its error, a *client.CallError, is client.ErrNoReceipt if there is
// nothing to refund, or not any more.
func (l *Limits) Refund(ctx context.Context, receipt string) error {
	return l.other(ctx, "refund", func() error { return l.engine.Refund(ctx, receipt) })
}

// Confirm confirms, once, that the units of receipt were real. Its error, a *client.CallError, is client.ErrNoReceipt
// where the receipt was refunded or its window is over.
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

// Reset forgets the counts of identifier under policy.
func (l *Limits) Reset(ctx context.Context, policy, identifier string) error {
	return l.other(ctx, "reset", func() error { return l.engine.Reset(ctx, policy, keys.Identifier(identifier)) })
}

// other does operations other than check, record and take.
func (l *Limits) other(ctx context.Context, op string, do func() error) error {
	if err := l.refuses(ctx, &client.Call{Op: client.OpRecord, Reservation: "-"}); err != nil {
		return &client.CallError{Op: op, Recorded: client.RecordedNo, Err: err}
	}
	err := do()
	if err == nil {
		return nil
	}
	p := problemFrom(api.ProblemOf(nil, "", err))
	recorded := p.Recorded // the units of a refused receipt are unknown
	if recorded == "" && op == "reset" {
		recorded = client.RecordedNo
	}
	return &client.CallError{Op: op, Recorded: recorded, Err: p}
}
