package api

import (
	"context"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// policyList is the answer of GET /v1/policies.
type policyList struct {
	Version  int64        `json:"version"` // 0: those of a file, or the examples
	Policies []policyView `json:"policies"`
}

// policyView is a policy in force, with every default filled in.
type policyView struct {
	Name         string              `json:"name"`
	Description  string              `json:"description,omitempty"`
	Limits       []limitView         `json:"limits"`
	Count        policy.CountMode    `json:"count"`
	Counting     policy.Counting     `json:"counting"`
	Guarantee    policy.Guarantee    `json:"guarantee"`
	WriteFrom    int                 `json:"write_from_percent,omitempty"`
	Consistency  consistencyView     `json:"consistency"`
	Scope        policy.Scope        `json:"scope"`
	Caveat       string              `json:"caveat,omitempty"`
	Mode         policy.Mode         `json:"mode"`
	OnStoreError policy.OnStoreError `json:"on_store_error"`
	Normalize    normalizeView       `json:"normalize,omitzero"`
	Derive       []deriveView        `json:"derive,omitempty"`
	Countries    choiceView          `json:"countries,omitzero"`
	NumberTypes  choiceView          `json:"number_types,omitzero"`
	BlockForMS   int64               `json:"block_for_ms,omitempty"`
	BlockFactor  int                 `json:"block_factor,omitempty"`
	BlockMaxMS   int64               `json:"block_max_ms,omitempty"`
}

type limitView struct {
	Name      string           `json:"name"`
	Algorithm string           `json:"algorithm"`
	Limit     int64            `json:"limit"`
	Max       int64            `json:"max,omitempty"` // of a request's limit
	By        map[string]int64 `json:"by,omitempty"`
	WindowMS  int64            `json:"window_ms"`
	Window    policy.Calendar  `json:"window,omitempty"`
	Timezone  string           `json:"timezone,omitempty"`
	Buckets   int              `json:"buckets,omitempty"`
	Rounding  policy.Rounding  `json:"rounding,omitempty"`
	Burst     int64            `json:"burst,omitempty"`
	Shadow    bool             `json:"shadow,omitempty"`
	Until     policy.Until     `json:"until,omitempty"`

	MinConversionPercent int   `json:"min_conversion_percent,omitempty"`
	Unconfirmed          bool  `json:"unconfirmed,omitempty"`
	ProbeMS              int64 `json:"probe_ms,omitempty"`
}

type normalizeView struct {
	Form    policy.Form `json:"form"`
	Region  string      `json:"region,omitempty"`
	Mailbox bool        `json:"mailbox,omitempty"`
}

type deriveView struct {
	Policy   string      `json:"policy"`
	From     policy.Part `json:"from"`
	Digits   int         `json:"digits,omitempty"`
	IPv4Bits int         `json:"ipv4_bits,omitempty"`
	IPv6Bits int         `json:"ipv6_bits,omitempty"`
	When     policy.When `json:"when,omitempty"`
}

// choiceView has either allow or deny.
type choiceView struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
}

type consistencyView struct {
	Write policy.Level `json:"write"`
	Read  policy.Level `json:"read"`
}

// decodePolicyName reads the name in the path. A name that can't be decoded is that of an unknown policy.
func decodePolicyName(r *http.Request, m *scratch) (string, error) {
	name, err := url.PathUnescape(chi.URLParam(r, "name"))
	if err != nil {
		return "", limiter.ErrUnknownPolicy
	}
	return name, mayUse(m.caller, name)
}

// policies lists the policies that caller may use.
func (s *Server) policies(_ context.Context, caller *auth.Caller) (answer, error) {
	version, inForce := s.engine.Version()
	list := policyList{Version: version, Policies: []policyView{}}
	for _, p := range inForce {
		if caller.MayUse(p.Name) {
			list.Policies = append(list.Policies, s.viewPolicy(p))
		}
	}
	return tagged{encode.Document{Content: list}, version}, nil
}

func (s *Server) policy(_ context.Context, name string) (answer, error) {
	p, ok := s.engine.Policy(name)
	if !ok {
		return nil, limiter.ErrUnknownPolicy
	}
	return encode.Document{Content: s.viewPolicy(p)}, nil
}

func (s *Server) viewPolicy(p *policy.Policy) policyView {
	scope, caveat := s.engine.Promise(p)
	view := policyView{
		Name:         p.Name,
		Description:  p.Description,
		Limits:       make([]limitView, len(p.Limits)),
		Count:        p.Count,
		Counting:     p.Counting,
		Guarantee:    p.Guarantee,
		WriteFrom:    p.WriteFrom,
		Consistency:  consistencyView(p.Consistency),
		Scope:        scope,
		Caveat:       caveat,
		Mode:         p.Mode,
		OnStoreError: p.OnStoreError,
		Normalize:    normalizeView(p.Normalize),
		Countries:    choiceView(p.Countries),
		NumberTypes:  choiceView(p.NumberTypes),
		BlockForMS:   encode.Milliseconds(p.BlockFor),
		BlockFactor:  p.BlockFactor,
		BlockMaxMS:   encode.Milliseconds(p.BlockMax),
	}
	for _, d := range p.Derive {
		view.Derive = append(view.Derive, deriveView(d))
	}
	for i, l := range p.Limits {
		view.Limits[i] = limitView{
			Name:      l.Name,
			Algorithm: l.Algorithm,
			Limit:     l.Limit,
			Max:       l.Max,
			By:        l.By,
			WindowMS:  encode.Milliseconds(l.Window),
			Window:    l.Calendar,
			Timezone:  l.Timezone,
			Buckets:   l.Buckets,
			Rounding:  l.Rounding,
			Burst:     l.Burst,
			Shadow:    l.Shadow,
			Until:     l.Until,

			MinConversionPercent: l.MinConversion,
			Unconfirmed:          l.Unconfirmed,
			ProbeMS:              encode.Milliseconds(l.Probe),
		}
	}
	return view
}
