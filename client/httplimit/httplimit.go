// Package httplimit limits a net/http service's requests by ratelimitd's policies:
//
//	limit := httplimit.New(limits, nil) // limits is a *client.Client
//	mux.Handle("POST /withdraw", limit.Policy("withdraw", httplimit.Cost(2))(withdraw))
//	r.With(limit.Policy("withdraw", httplimit.Cost(2))).Post("/withdraw", withdraw) // chi
//
// A denied request is answered with 429 and the headers of ratelimitd's own answers; an allowed one gets the headers
// too. Several policies are asked by one request to the service, and decided together. While the service does not
// decide, requests pass, unless Options.FailClosed is set. Each such request is counted (Limiter.Undecided) and
// reported (Options.Undecided), and logged at most once a second. Limiter.Verify checks at the start that all policies
// exist. A rule with After charges a request when it is done, for the bytes of its response, for example; the next
// request is denied once the quota is spent. Units under concurrent limits are released when the handler has returned
// or panicked; a stream holds them until its end.
//
// The sender of a request is identified by the address of the connection, unless a rule says otherwise. Forwarded
// addresses count only if a trusted proxy has set them.
package httplimit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/internal/throttle"
	"github.com/ratelimitd/ratelimitd/client/origin"
)

// Decider decides for a Limiter: a *client.Client, or the Limits of package inprocess. Units under concurrent limits
// are released by its method Refund, which both have; without one, they count until their hold ends.
type Decider interface {
	Do(ctx context.Context, call client.Call) (client.Decision, error)
}

// Options of a Limiter. The zero value suits a service without a proxy in front.
type Options struct {
	// TrustedProxies are the addresses of proxies whose X-Forwarded-For is trusted; empty: none.
	TrustedProxies []netip.Prefix
	Identify       Identify                  // the sender, for rules without By; nil: IP(TrustedProxies...)
	Cost           func(*http.Request) int64 // units, for rules without Cost; nil: 1. See CostByMethod
	Skip           func(*http.Request) bool  // requests that are not limited; nil: none
	FailClosed     bool                      // answers 503 without a decision; false: the request passes

	// Denied answers a denied request, whose headers are set; nil: with a problem of RFC 9457.
	Denied func(http.ResponseWriter, *http.Request, client.Decision)

	// Undecided is called with every call that was not decided, with its policies and identifiers, and with the error.
	// The request passed or, under FailClosed, was refused; a call that records is a lost charge. Undecided runs on the
	// goroutine of the request, and must not block. It may be nil.
	Undecided func(r *http.Request, call client.Call, err error)
	Logger    *slog.Logger // logs calls without a decision, at most one line a second; nil: slog.Default()
}

// Limiter makes middleware. It is safe for concurrent use; make one with New.
type Limiter struct {
	limits                 Decider
	opts                   Options
	hidden, asked, charged throttle.Second // bound lines of the log
	unreleased             throttle.Second
	undecided              atomic.Uint64

	mu       sync.Mutex
	policies map[string]struct{} // named by rules, for Verify
}

// New returns a Limiter that asks limits. A nil opts means the zero Options.
func New(limits Decider, opts *Options) *Limiter {
	l := &Limiter{limits: limits, policies: make(map[string]struct{})}
	if opts != nil {
		l.opts = *opts
	}
	if l.opts.Identify == nil {
		l.opts.Identify = IP(l.opts.TrustedProxies...)
	}
	if l.opts.Cost == nil {
		l.opts.Cost = func(*http.Request) int64 { return 1 }
	}
	if l.opts.Denied == nil {
		l.opts.Denied = denied
	}
	l.opts.Logger = cmp.Or(l.opts.Logger, slog.Default())
	return l
}

// CostByMethod returns an Options.Cost: read units for GET, HEAD and OPTIONS, and write units for other methods.
func CostByMethod(read, write int64) func(*http.Request) int64 {
	return func(r *http.Request) int64 {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			return read
		}
		return write
	}
}

// Policy returns middleware that takes units of one policy.
func (l *Limiter) Policy(name string, how ...RuleOption) func(http.Handler) http.Handler {
	return l.All(Use(name, how...))
}

// All returns middleware that takes units under all rules or under none, by one request to the service. Rules with
// After are checked for free units before, by a request of their own, and charged after the response.
func (l *Limiter) All(rules ...Rule) func(http.Handler) http.Handler {
	now, after := split(rules)
	l.name(rules)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if l.opts.Skip != nil && l.opts.Skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			later := l.measures(r, after)
			if r = l.admit(w, r, client.OpCheck, later.demands); r == nil {
				return
			}
			asked := r
			if r = l.admit(w, r, client.OpTake, l.demands(r, now)); r == nil {
				return
			}
			if r != asked { // there is a decision
				d, _ := DecisionOf(r)
				defer l.release(r, d.Release)
			}
			l.serve(w, r, &later, next)
		})
	}
}

// admit asks for demands, and returns the request to continue with; nil if it was answered.
func (l *Limiter) admit(w http.ResponseWriter, r *http.Request, op client.Op, demands []client.Demand) *http.Request {
	if len(demands) == 0 {
		return r
	}
	if slices.ContainsFunc(demands, func(d client.Demand) bool { return d.Identifier == "" }) {
		l.refuseHidden(w, r)
		return nil
	}
	call := client.Call{Op: op, Demands: demands}
	d, err := l.limits.Do(r.Context(), call)
	detail, refused := refusesIdentifier(err)
	switch {
	case refused:
		badRequest(w, detail)
	case errors.Is(err, client.ErrCostTooLarge):
		tooLarge(w)
	case err != nil && r.Context().Err() != nil: // the client is gone
		unavailable(w)
	case err != nil && l.opts.FailClosed:
		l.tellUndecided(r, &call, &l.asked, "ratelimitd does not decide: requests are refused", err)
		unavailable(w)
	case err != nil:
		l.tellUndecided(r, &call, &l.asked, "ratelimitd does not decide: requests pass without a limit", err)
		return r
	case len(d.Limits) == 0 && d.Allowed && d.Degraded: // by client.FailOpen
		l.tellUndecided(r, &call, &l.asked, "ratelimitd does not decide: requests pass without a limit", client.ErrUnavailable)
		return r
	case !d.Allowed:
		setHeaders(w.Header(), &d)
		l.opts.Denied(w, r, d)
	case op == client.OpCheck:
		setHeaders(w.Header(), &d)
		return r
	default:
		setHeaders(w.Header(), &d)
		return r.WithContext(context.WithValue(r.Context(), decisionKey{}, d))
	}
	return nil
}

// releaser is a Decider that can free the units of a receipt.
type releaser interface {
	Refund(ctx context.Context, receipt string) error
}

// release frees the units that counted while r was under way, even if its client has left; release is empty if there
// are none. Units that can't be freed count until their hold ends.
func (l *Limiter) release(r *http.Request, release string) {
	limits, ok := l.limits.(releaser)
	if release == "" || !ok {
		return
	}
	err := limits.Refund(context.WithoutCancel(r.Context()), release)
	if err != nil && !errors.Is(err, client.ErrNoReceipt) && l.unreleased.Allow(time.Now()) {
		l.opts.Logger.ErrorContext(r.Context(), "units under concurrent limits are not released before their hold ends", "error", err)
	}
}

type decisionKey struct{}

// DecisionOf returns the decision that allowed r, for a handler that refunds its receipt; false if there is none.
func DecisionOf(r *http.Request) (client.Decision, bool) {
	d, ok := r.Context().Value(decisionKey{}).(client.Decision)
	return d, ok
}

// refuseHidden answers a request for which a trusted proxy gives no address: all clients of that proxy would share a
// limit.
func (l *Limiter) refuseHidden(w http.ResponseWriter, r *http.Request) {
	if l.hidden.Allow(time.Now()) {
		l.opts.Logger.ErrorContext(r.Context(), "requests are refused", "error", origin.ErrHidden)
	}
	badRequest(w, "A proxy in front of this service does not tell which address it asks for.")
}

// Rule is a demand for each request. Make one with Use.
type Rule struct {
	policy   string
	identify Identify
	cost     func(*http.Request) int64
	limit    func(*http.Request) int64 // nil: the policy's
	after    Measure                   // nil: units are taken before the response
}

// RuleOption changes a Rule.
type RuleOption func(*Rule)

// Use returns the Rule to take units of a policy.
func Use(policy string, how ...RuleOption) Rule {
	rule := Rule{policy: policy}
	for _, option := range how {
		option(&rule)
	}
	return rule
}

// Cost sets the units of every request; 0: none are taken.
func Cost(units int64) RuleOption {
	return CostOf(func(*http.Request) int64 { return units })
}

// CostOf sets the units of each request to the result of cost, such as its length. If that is less than 1, the request
// is not limited. If it exceeds the policy's limit, the request is answered with 413.
func CostOf(cost func(*http.Request) int64) RuleOption {
	return func(rule *Rule) { rule.cost = cost }
}

// LimitOf sets the limit of each request to the result of limit, under a policy that takes its limit from requests; 0:
// the policy's default. Derive it from this service's own data about the customer, such as the tariff of the session's
// account, never from the request: senders could choose any limit then.
func LimitOf(limit func(*http.Request) int64) RuleOption {
	return func(rule *Rule) { rule.limit = limit }
}

// By sets how a request's sender is identified. If identify returns an empty string, the address counts, so that nobody
// evades a limit by omitting a header.
func By(identify Identify) RuleOption {
	return func(rule *Rule) { rule.identify = identify }
}

// demands returns the demands for r, without repetitions.
func (l *Limiter) demands(r *http.Request, rules []Rule) []client.Demand {
	demands := make([]client.Demand, 0, len(rules))
	for _, rule := range rules {
		d := client.Demand{Policy: rule.policy, Identifier: l.identify(r, rule.identify), Cost: l.opts.Cost(r)}
		if rule.cost != nil {
			d.Cost = rule.cost(r)
		}
		d.Limit = rule.limitOf(r)
		if d.Cost = min(d.Cost, maxUnits); d.Cost > 0 && !has(demands, &d) {
			demands = append(demands, d)
		}
	}
	return demands
}

// limitOf returns the limit that r sets; 0: none.
func (rule *Rule) limitOf(r *http.Request) int64 {
	if rule.limit == nil {
		return 0
	}
	return rule.limit(r)
}

func has(demands []client.Demand, d *client.Demand) bool {
	for i := range demands {
		if demands[i].Policy == d.Policy && demands[i].Identifier == d.Identifier {
			return true
		}
	}
	return false
}

// identify returns the identifier of r's sender, empty if a trusted proxy hides it.
func (l *Limiter) identify(r *http.Request, by Identify) string {
	if by == nil {
		by = l.opts.Identify
	}
	if identifier := by(r); identifier != "" {
		return origin.Bounded(identifier)
	}
	address, err := origin.Proxies(l.opts.TrustedProxies).Client(r)
	if err != nil {
		return ""
	}
	return origin.Unidentified + cmp.Or(address, "unknown")
}
