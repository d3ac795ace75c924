package httplimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/throttle"
)

// Undecided returns the number of requests without a decision and of lost charges: a metric that should stay at 0.
//
//	prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "ratelimit_undecided_total"},
//		func() float64 { return float64(limit.Undecided()) })
func (l *Limiter) Undecided() uint64 { return l.undecided.Load() }

// tellUndecided counts and reports that call, of r, was not decided. It logs that unless it logged within the last
// second.
func (l *Limiter) tellUndecided(r *http.Request, call *client.Call, second *throttle.Second, what string, err error) {
	total := l.undecided.Add(1)
	if l.opts.Undecided != nil {
		l.opts.Undecided(r, *call, err)
	}
	if !second.Allow(time.Now()) {
		return
	}
	policies := make([]string, len(call.Demands))
	for i := range call.Demands {
		policies[i] = call.Demands[i].Policy
	}
	l.opts.Logger.ErrorContext(r.Context(), what, "policies", policies, "error", err, "undecided", total)
}

// name adds the policies of rules, for Verify.
func (l *Limiter) name(rules []Rule) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rule := range rules {
		l.policies[rule.policy] = struct{}{}
	}
}

// Verify asks the service for every policy that the middleware made so far names. Call it at the start, once all routes
// exist. Its error names the policies that are not in force or may not be used, whose requests would pass without a
// limit; or it is client.ErrUnavailable, if the service does not answer. Verify records nothing.
func (l *Limiter) Verify(ctx context.Context) error {
	l.mu.Lock()
	names := slices.Sorted(maps.Keys(l.policies))
	l.mu.Unlock()
	var wrong []error
	for _, name := range names {
		d, err := l.limits.Do(ctx, client.Call{Op: client.OpCheck, Demands: []client.Demand{{Policy: name, Identifier: "verify", Cost: 1}}})
		_, refused := refusesIdentifier(err)
		switch {
		case err == nil && len(d.Limits) == 0 && d.Degraded: // by client.FailOpen
			return fmt.Errorf("policy %q: %w", name, client.ErrUnavailable)
		case err == nil, refused, errors.Is(err, client.ErrCostTooLarge): // so the policy exists
		case !errors.Is(err, client.ErrInvalid):
			return fmt.Errorf("policy %q: %w", name, err)
		default:
			wrong = append(wrong, fmt.Errorf("policy %q: %w", name, err))
		}
	}
	return errors.Join(wrong...)
}
