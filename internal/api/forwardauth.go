package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// ForwardAuth has the options of GET /v1/forward-auth, by which gateways ask about the requests that they serve. The
// zero value trusts no gateway, and so refuses all calls.
type ForwardAuth struct {
	TrustedProxies origin.Proxies  // the gateways, and the proxies in front of them
	Identify       []origin.Source // permitted values of identify=, its default first; none: the address alone
}

// statusHeader has the actual status for a gateway that only understands 403.
const statusHeader = "X-Ratelimit-Status"

// The parameters of forward-auth.
var forwardParams = []string{"policy", "identify", "cost", "deny-status"}

// forwarded is the question of a gateway, and later its answer.
type forwarded struct {
	limiter.Call
	denyStatus int
	encode.Decided
}

// decodeForward reads the question of a gateway: the identifier from the forwarded headers, all else from the query.
func (s *Server) decodeForward(r *http.Request, _ *scratch) (*forwarded, error) {
	gateways := &s.opts.ForwardAuth
	trusted := gateways.TrustedProxies
	if !trusted.Trust(r.RemoteAddr) {
		return nil, encode.ErrUntrusted
	}
	if err := s.addressed(r.Host); err != nil {
		return nil, err
	}
	if strings.Trim(strings.Join(r.Header["X-Forwarded-For"], ""), " ,") == "" {
		return nil, decode.Wrong("X-Forwarded-For", "X-Forwarded-For is missing: a gateway must say for which address it asks.")
	}
	if _, err := trusted.Client(r); err != nil {
		return nil, decode.Wrong("X-Forwarded-For", "It has no address where a gateway must say for which one it asks.")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, decode.Wrong("", "The query is malformed: write it such as ?policy=api&identify=header:X-Api-Key.")
	}
	for name := range query {
		if !slices.Contains(forwardParams, name) {
			return nil, decode.Unknown(name, forwardParams)
		}
	}
	f := &forwarded{Call: limiter.Call{Op: count.OpTake}}
	if f.denyStatus, err = denyStatus(query["deny-status"]); err != nil {
		return nil, err
	}
	f.Demands, err = s.forwardDemands(r, query)
	return f, err
}

// denyStatus returns the status of a denial.
func denyStatus(given []string) (int, error) {
	if len(given) == 0 {
		return http.StatusTooManyRequests, nil
	}
	status, err := strconv.Atoi(given[0])
	if err != nil || len(given) > 1 || status != http.StatusForbidden && status != http.StatusTooManyRequests {
		return 0, decode.Wrong("deny-status", "It must be 403 or 429.")
	}
	return status, nil
}

// forwardDemands returns a demand for each policy. There is one source and cost for all policies, or one for each, in
// their order.
func (s *Server) forwardDemands(r *http.Request, query url.Values) ([]limiter.Demand, error) {
	policies := query["policy"]
	if n := len(policies); n == 0 || n > policy.MaxDemands {
		return nil, decode.Wrong("policy", "Name 1 to "+strconv.Itoa(policy.MaxDemands)+" policies: ?policy=api.")
	}
	gateways, demands := &s.opts.ForwardAuth, make([]limiter.Demand, len(policies))
	for i, policy := range policies {
		source, err := s.forwardSource(query, i)
		if err != nil {
			return nil, err
		}
		cost, err := forwardCost(query, i)
		if err != nil {
			return nil, err
		}
		id, err := source.Identify(r, gateways.TrustedProxies)
		if err != nil {
			return nil, err
		}
		demands[i] = limiter.Demand{Policy: policy, Identifier: keys.Identifier(id), Cost: cost}
	}
	return demands, nil
}

// ofPolicy returns the value of a parameter for policy i: empty if it is not given.
func ofPolicy(query url.Values, name string, i int) (string, error) {
	given := query[name]
	switch len(given) {
	case 0:
		return "", nil
	case 1:
		return given[0], nil
	case len(query["policy"]):
		return given[i], nil
	}
	return "", decode.Wrong(name, "Give it once for all policies, or once for each, in their order.")
}

// forwardSource returns the source of the identifier of policy i, if it is a permitted one.
func (s *Server) forwardSource(query url.Values, i int) (origin.Source, error) {
	gateways := &s.opts.ForwardAuth
	permitted := gateways.Identify
	if len(permitted) == 0 {
		permitted = []origin.Source{{}}
	}
	text, err := ofPolicy(query, "identify", i)
	if err != nil || text == "" {
		return permitted[0], err
	}
	source, err := origin.ParseSource(text)
	if err != nil {
		return source, decode.Wrong("identify", "It must be ip, header:NAME, api-key, user or all.")
	}
	if !slices.ContainsFunc(permitted, func(p origin.Source) bool { return p.String() == source.String() }) {
		return source, decode.Wrong("identify", "This server does not permit it: see --forward-auth-identify.")
	}
	return source, nil
}

// forwardCost returns the units of policy i.
func forwardCost(query url.Values, i int) (int64, error) {
	text, err := ofPolicy(query, "cost", i)
	if err != nil || text == "" {
		return 1, err
	}
	cost, err := decode.Value(text).Integer(1, policy.MaxCost)
	return cost, decode.Under("cost", err)
}

// forwardAuth takes the demands of a gateway.
func (s *Server) forwardAuth(ctx context.Context, f *forwarded) (answer, error) {
	a, err := s.do(ctx, &f.Call)
	if err != nil {
		return nil, &decode.CallError{Recorded: cmp.Or(a.Recorded, decode.RecordedOf(err)), Err: err}
	}
	f.Decided = encode.Decided{Answer: a, Listed: a.Demands != nil, Families: s.opts.Headers}
	return f, nil
}

// Render writes the whole denial, which the gateway passes on, or only the headers of an admission.
func (f *forwarded) Render(h http.Header, b []byte) (status int, body []byte) {
	if f.Allowed {
		encode.SetHeaders(h, &f.Decision, f.Families)
		return http.StatusOK, b
	}
	status, body = f.Decided.Render(h, b)
	if f.denyStatus != status {
		h[statusHeader] = []string{strconv.Itoa(status)}
	}
	return f.denyStatus, body
}
