package demand

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Override decides one identifier under one policy otherwise, or all that begin alike, until a moment or without end.
type Override struct {
	Prefix string // of the canonical form of those identifiers; empty: it is of one identifier
	Kind   policy.OverrideKind
	Limits []LimitOverride // of policy.OverrideLimits: 1 to policy.MaxLimits of the policy's limits, none twice
	Until  store.Instant   // store.Distant: it has no end
	By     string          // who made it, by a name that the caller gives; empty: nobody says

	Made store.Instant // when it was made; Overrides.Set fills it in
}

// Stays reports whether o has no end.
func (o *Override) Stays() bool { return o.Until >= store.Distant }

// LimitOverride is what a limit of a policy is in its place. Algorithm and window stay.
type LimitOverride struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Burst int64  `json:"burst,omitempty"` // of a token bucket; 0: the policy's or, where that is its limit, Limit
}
