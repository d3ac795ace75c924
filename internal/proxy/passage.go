package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// CostHeader is the header by which an application reports the objects in its answer. Clients do not see it.
const CostHeader = "X-Ratelimit-Cost"

// passage is a request in progress.
type passage struct {
	proxy   *Proxy
	route   *Route // nil: none
	request *http.Request
	asked   []limiter.Demand // for each limit of the route, without cost

	shown    *count.Decision // for the headers; nil: none
	first    string          // the receipt of units that count in any case
	served   []served        // units that count only if they were served
	releases []string        // of units that count until the request ends
	status   int             // of the answer; 0: there was none
	received atomic.Int64    // bytes of the request's body
	halfSent atomic.Bool     // the request's body broke off
	sent     atomic.Int64    // bytes of the answer's body
	reported int64           // units that the application reported
}

// served has the demands of a route's limits with the same statuses.
type served struct {
	like    *Limit // one of them
	demands []limiter.Demand
	receipt string // empty: nothing was taken
}

func (x *passage) name() string {
	if x.route == nil {
		return RouteNone
	}
	return x.route.Name
}

// admit takes the units of the request, and reports whether it may pass. If not, it answers.
func (x *passage) admit(w http.ResponseWriter) bool {
	if x.route == nil || len(x.route.Limits) == 0 {
		return true
	}
	if err := x.identify(); err != nil {
		switch {
		case errors.Is(err, origin.ErrHidden):
			encode.WriteStatus(w, http.StatusBadRequest, "A proxy in front of this one does not tell which address it asks for.")
		case errors.Is(err, limiter.ErrInvalid):
			encode.WriteError(w, err)
		default:
			encode.WriteStatus(w, http.StatusInternalServerError, misconfigured)
		}
		x.proxy.note("requests are refused", "route", x.name(), "error", err)
		return false
	}
	var spent, first []limiter.Demand
	for i := range x.route.Limits {
		l := &x.route.Limits[i]
		d := x.asked[i]
		d.Cost = l.Cost
		switch {
		case l.Charge == ChargeRequests && l.Served:
			x.serve(l, d)
		case l.Charge == ChargeRequests:
			first = append(first, d)
		case l.Charge == ChargeRequestBytes && x.request.ContentLength == 0 && !upgrades(x.request): // there are no units
		case l.Charge == ChargeRequestBytes && x.request.ContentLength > 0:
			d.Cost = min(x.request.ContentLength, policy.MaxCost)
			first = append(first, d)
		default: // the units are not known yet: check whether any remain
			d.Cost = 1
			spent = append(spent, d)
		}
	}
	return x.ask(w, count.OpCheck, spent, nil) && x.ask(w, count.OpTake, first, &x.first) && x.takeServed(w)
}

// serve adds the demand d of l to those that count if the request is served.
func (x *passage) serve(l *Limit, d limiter.Demand) {
	at := slices.IndexFunc(x.served, func(s served) bool { return slices.Equal(s.like.Statuses, l.Statuses) })
	if at < 0 {
		at, x.served = len(x.served), append(x.served, served{like: l})
	}
	x.served[at].demands = append(x.served[at].demands, d)
}

// takeServed takes the units that are refunded unless the request is served. If one demand is denied, nothing counts.
func (x *passage) takeServed(w http.ResponseWriter) bool {
	for i := range x.served {
		if s := &x.served[i]; x.ask(w, count.OpTake, s.demands, &s.receipt) {
			continue
		}
		x.giveBack(x.first)
		for j := range i {
			x.giveBack(x.served[j].receipt)
		}
		x.served = nil
		return false
	}
	return true
}

// identify reads the identifiers and the limits of the request.
func (x *passage) identify() error {
	x.asked = make([]limiter.Demand, len(x.route.Limits))
	for i := range x.route.Limits {
		l := &x.route.Limits[i]
		who, err := l.Identify.Identify(x.request, x.proxy.opts.TrustedProxies)
		if err != nil {
			return err
		}
		limit, err := x.proxy.limitOf(l, x.request)
		if err != nil {
			return err
		}
		x.asked[i] = limiter.Demand{Policy: l.Policy, Identifier: keys.Identifier(who), Limit: limit}
	}
	return nil
}

// ask reports whether all demands are allowed, and keeps the receipt. If not, it answers.
func (x *passage) ask(w http.ResponseWriter, op count.Op, demands []limiter.Demand, receipt *string) bool {
	if len(demands) == 0 {
		return true
	}
	a, err := x.proxy.do(x.request.Context(), op, demands)
	switch {
	case err != nil:
		x.refuse(w, err)
		return false
	case !a.Allowed:
		encode.WriteDenial(w, &a, x.proxy.opts.Headers)
		return false
	}
	if x.shown == nil || op == count.OpTake {
		x.shown = &a.Decision
	}
	if receipt != nil {
		*receipt = a.Receipt
	}
	if a.Release != "" {
		x.releases = append(x.releases, a.Release)
	}
	return true
}

// do lets the engine decide, within the trace of ctx.
func (p *Proxy) do(ctx context.Context, op count.Op, demands []limiter.Demand) (limiter.Answer, error) {
	ctx, span := p.opts.Tracer.Decide(ctx, op)
	a, err := p.engine.Do(ctx, &limiter.Call{Op: op, Demands: demands})
	span.Decided(&a.Decision, len(demands), err)
	return a, err
}

// misconfigured is the error for clients if routes and policies do not fit together. The log has the reason.
const misconfigured = "The limits of this route are misconfigured; the log says how."

// refuse answers a request that could not be decided, or that can never be within its limit.
func (x *passage) refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, limiter.ErrCostTooLarge):
		encode.WriteStatus(w, http.StatusRequestEntityTooLarge, "The request is larger than its limit can ever hold.")
		return
	case errors.Is(err, limiter.ErrInvalid): // such as an identifier in a wrong form
		encode.WriteError(w, err)
		return
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrOverloaded):
		encode.WriteError(w, err)
	default:
		encode.WriteStatus(w, http.StatusInternalServerError, misconfigured)
	}
	if x.request.Context().Err() == nil {
		x.proxy.note("a request was refused undecided", "route", x.name(), "error", err)
	}
}

// answered prepares an answer before it is passed on.
func (x *passage) answered(res *http.Response) {
	x.status = res.StatusCode
	x.reported = x.takeReport(res.Header)
	if res.StatusCode == http.StatusSwitchingProtocols {
		keepEndToEnd(res.Header, true)
	}
	if x.route == nil || len(x.route.Limits) == 0 {
		return
	}
	if x.shown != nil && (len(x.served) == 0 || x.counts(x.served[len(x.served)-1].like)) { // whose decision it is
		encode.SetHeaders(res.Header, x.shown, x.proxy.opts.Headers)
	}
	if duplex, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
		res.Body = &upgraded{ReadWriteCloser: duplex, received: &x.received, sent: &x.sent}
		return
	}
	res.Body = &body{ReadCloser: res.Body, passed: &x.sent}
}

// counts reports whether the units that l took for the request stay counted. They do if the client hung up, since the
// application has worked, and hanging up must not be a way around a limit.
func (x *passage) counts(l *Limit) bool {
	return x.status == statusClientGone || x.halfSent.Load() || l.serves(x.status)
}

// takeReport returns the units in the application's header, and removes the header. It returns 0 for a header that is
// not a number.
func (x *passage) takeReport(h http.Header) int64 {
	text := h.Get(CostHeader)
	h.Del(CostHeader)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		x.proxy.note("the application reports a value that is not a number", "header", CostHeader, "route", x.name())
		return 0
	}
	return n
}

// end releases the units that counted until the request ended, counts those that are only known now, and refunds those
// of a request that was not served.
func (x *passage) end() {
	if x.route == nil {
		return
	}
	for _, release := range x.releases {
		x.giveBack(release)
	}
	for i := range x.served {
		if s := &x.served[i]; !x.counts(s.like) {
			x.giveBack(s.receipt)
		}
	}
	var demands []limiter.Demand
	for i := range x.route.Limits {
		l := &x.route.Limits[i]
		if units := x.units(l); units > 0 {
			d := x.asked[i]
			d.Cost = min(units, policy.MaxCost)
			demands = append(demands, d)
		}
	}
	if len(demands) == 0 {
		return
	}
	ctx := context.WithoutCancel(x.request.Context())
	if _, err := x.proxy.do(ctx, count.OpRecord, demands); err != nil {
		x.proxy.note("units of a request that was passed on may not be counted", "route", x.name(), "error", err)
	}
}

// units returns the units of l that were not taken before.
func (x *passage) units(l *Limit) int64 {
	switch {
	case x.status == 0:
	case l.Charge == ChargeRequestBytes && x.request.ContentLength < 0:
		return x.received.Load()
	case l.Charge == ChargeRequestBytes && x.status == http.StatusSwitchingProtocols:
		return x.received.Load()
	case l.Charge == ChargeResponseBytes:
		return x.sent.Load()
	case l.Charge == ChargeReported:
		return x.reported
	}
	return 0
}

// giveBack refunds the units of receipt.
func (x *passage) giveBack(receipt string) {
	if receipt == "" {
		return
	}
	err := x.proxy.engine.Refund(context.WithoutCancel(x.request.Context()), receipt)
	if err != nil && !errors.Is(err, limiter.ErrNoReceipt) {
		x.proxy.note("units of a request that was not served may stay counted", "route", x.name(), "error", err)
	}
}
