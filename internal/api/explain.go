package api

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Values of because: the rules that can decide. A rule about numbers has its policy.Reason.
const (
	becauseOff      = "off"      // the policy neither decides nor counts
	becauseOverride = "override" // one that allows or blocks
	becauseBlock    = "block"    // one that follows a denial
	becauseStore    = "store"    // it does not answer, and on_store_error decides
	becauseLimit    = "limit"    // one has no room
	becauseDerived  = "derived"  // another policy, for a part of the identifier
	becauseRoom     = "room"     // all have
)

// explainNames are the members of the body of explain.
var explainNames = append(slices.Clip(decode.KeyNames), "limit")

// decodeExplain reads {"policy", "identifier", "limit"}.
func decodeExplain(r *http.Request, m *scratch) (a admin, err error) {
	a.by = m.askerOf(r)
	a.Demand, err = m.readDemand(r, explainNames)
	return a, err
}

// explain answers with everything that affects decisions about an identifier.
func (s *Server) explain(ctx context.Context, a admin) (answer, error) {
	x, err := s.engine.Explain(ctx, a.Demand)
	s.audit(ctx, &a.by, "explain", &a.Demand, err)
	if err != nil {
		return nil, err
	}
	if x.Failed != nil {
		s.opts.Logger.LogAttrs(ctx, slog.LevelWarn, "explaining without the store", slog.Any("error", x.Failed))
	}
	view := s.viewExplanation(x)
	for _, derived := range x.Derived {
		of := s.viewExplanation(derived)
		if view.Allowed && !of.Allowed {
			view.Allowed, view.Because, view.Detail, view.RetryAfterMS = false, becauseDerived, of.Detail, of.RetryAfterMS
		}
		view.Derived = append(view.Derived, of)
	}
	return encode.Document{Content: view}, nil
}

// explainView is an explanation as JSON.
type explainView struct {
	Policy       string             `json:"policy"`
	Key          string             `json:"key"`
	Allowed      bool               `json:"allowed"`
	WouldAllow   bool               `json:"would_allow"`
	Because      string             `json:"because"`
	Detail       string             `json:"detail"`
	RetryAfterMS *int64             `json:"retry_after_ms"`
	DeniedBy     []string           `json:"denied_by"`
	Mode         policy.Mode        `json:"mode"`
	Guarantee    policy.Guarantee   `json:"guarantee"`
	Degraded     bool               `json:"degraded"`
	Limits       []explainLimitView `json:"limits"`
	Override     *overrideView      `json:"override"`
	Block        *explainBlockView  `json:"block"`
	ResetAt      *time.Time         `json:"reset_at"`
	Derived      []explainView      `json:"derived,omitempty"`
}

type explainLimitView struct {
	Name         string `json:"name"`
	Algorithm    string `json:"algorithm"`
	Limit        int64  `json:"limit"`
	PolicyLimit  int64  `json:"policy_limit"`
	WindowMS     int64  `json:"window_ms"`
	Allowed      bool   `json:"allowed"`
	Used         int64  `json:"used"`
	Remaining    int64  `json:"remaining"`
	ResetAfterMS int64  `json:"reset_after_ms"`
	RetryAfterMS *int64 `json:"retry_after_ms"`
	WouldDeny    *bool  `json:"would_deny,omitempty"` // of a shadow; nil: it is none
}

type explainBlockView struct {
	Until   time.Time `json:"until"`
	Strikes int       `json:"strikes"`
}

// viewExplanation returns e without derived demands.
func (s *Server) viewExplanation(e *limiter.Explanation) explainView {
	d, p := &e.Answer, e.InForce
	view := explainView{
		Policy: p.Name, Key: hex.EncodeToString(e.Key.Bytes()), Allowed: d.Allowed, WouldAllow: d.WouldAllow,
		RetryAfterMS: waitOf(d.RetryAfter), DeniedBy: []string{},
		Mode: p.Mode, Guarantee: p.Guarantee, Degraded: e.Failed != nil, Limits: []explainLimitView{},
	}
	view.Because, view.Detail = because(e)
	for i := range e.Counted.Limits() {
		l := &e.Counted.Limits()[i]
		if !l.Allowed && !l.Limit.Shadow {
			view.DeniedBy = append(view.DeniedBy, l.Limit.Name)
		}
		view.Limits = append(view.Limits, explainLimitView{
			Name: l.Limit.Name, Algorithm: l.Limit.Algorithm, Limit: l.Limit.Limit, PolicyLimit: policyLimit(e, i),
			WindowMS: encode.Milliseconds(l.Limit.Window), Allowed: l.Allowed || l.Limit.Shadow, Used: l.Used, Remaining: l.Remaining,
			ResetAfterMS: encode.Milliseconds(l.ResetAfter), RetryAfterMS: waitOf(l.RetryAfter),
			WouldDeny: wouldDeny(l),
		})
	}
	if e.Override != nil {
		view.Override = new(s.viewOverride(&overrides.Keyed{Key: e.Key, Policy: e.Policy, Override: *e.Override}))
	}
	if e.Block != nil {
		view.Block = &explainBlockView{Until: encode.ToMilliseconds(e.Block.Until.Time()), Strikes: e.Block.Strikes}
	}
	if e.Reset > 0 {
		view.ResetAt = new(encode.ToMilliseconds(e.Reset.Time()))
	}
	return view
}

// wouldDeny reports whether l, a shadow, would deny; nil: it is none.
func wouldDeny(l *count.LimitDecision) *bool {
	if !l.Limit.Shadow {
		return nil
	}
	return new(l.WouldDeny())
}

// policyLimit returns the number of limit i without an override. A reload may have changed the limits.
func policyLimit(e *limiter.Explanation, i int) int64 {
	if i < len(e.InForce.Limits) {
		return e.InForce.Limits[i].Limit
	}
	return e.Counted.Limits()[i].Limit.Limit
}

// waitOf returns a wait in milliseconds, nil if waiting does not help.
func waitOf(wait time.Duration) *int64 {
	if wait == count.Never {
		return nil
	}
	return new(encode.Milliseconds(wait))
}

// because returns the rule that decides, as a word and as a sentence.
func because(e *limiter.Explanation) (word, sentence string) {
	d := &e.Answer
	switch {
	case e.InForce.Mode == policy.ModeOff:
		return becauseOff, "The policy is off: it allows everything, and counts nothing."
	case d.Override == policy.OverrideAllow:
		return becauseOverride, "An override allows it, and nothing is counted meanwhile."
	case d.Override == policy.OverrideBlock:
		return becauseOverride, encode.Denial(d)
	case d.Reason != "":
		return string(d.Reason), encode.Denial(d)
	case d.Blocked:
		return becauseBlock, encode.Denial(d)
	case e.Failed != nil:
		return becauseStore, "The store does not answer: on_store_error " + string(e.InForce.OnStoreError) + " decides."
	case !d.WouldAllow:
		return becauseLimit, encode.Denial(d)
	}
	tightest := d.TightestLimit()
	return becauseRoom, fmt.Sprintf("Every limit has room: %d of %d units remain under %s.", d.Remaining, tightest.Limit, tightest.Name)
}
