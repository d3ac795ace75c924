package demand

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Override replaces a policy's rules for one identifier or for all with a prefix, until an instant or without end.
type Override struct {
	Prefix string // of the canonical form of the identifiers; empty: it is for one identifier
	Kind   policy.OverrideKind
	Limits []LimitOverride // for policy.OverrideLimits: 1 to policy.MaxLimits of the policy's limits, none twice
	Until  store.Instant   // store.Distant: it has no end
	By     string          // the administrator's name as the caller gave it; empty: none

	Made store.Instant // when it was made; Overrides.Set fills it in
}

// Stays reports whether o has no end.
func (o *Override) Stays() bool { return o.Until >= store.Distant }

// LimitOverride has the numbers that replace those of one of a policy's limits. Its algorithm and window stay.
type LimitOverride struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Burst int64  `json:"burst,omitempty"` // of a token bucket; 0: the policy's burst or, if that equals its limit, Limit
}
