package demand

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Override decides one identifier under one policy otherwise, until a moment.
type Override struct {
	Kind   policy.OverrideKind
	Limits []LimitOverride // of OverrideLimits: 1 to MaxLimits of the policy's limits, none twice
	Until  store.Instant
	By     string // who made it, by a name that the caller gives; empty: nobody says

	Made store.Instant // when it was made; Overrides.Set fills it in
}

// LimitOverride is what a limit of a policy is in its place. Algorithm and window stay.
type LimitOverride struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Burst int64  `json:"burst,omitempty"` // of a token bucket; 0: the policy's or, where that is its limit, Limit
}
