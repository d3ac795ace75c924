package encode

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Shadow has the counts of calls that shadows of a policy would have denied: its limits with shadow: true, or all
// limits in mode shadow. It is the answer of GET /v1/policies/{name}/shadow.
type Shadow struct {
	Policy     string           `json:"policy"`
	Mode       policy.Mode      `json:"mode"`
	Scope      string           `json:"scope"`               // ScopeInstance or ScopeInstances
	Version    int64            `json:"version,omitempty"`   // of the policies in force; 0: they have none
	Since      *time.Time       `json:"since"`               // when counting began; nil: nothing is in shadow
	Calls      int64            `json:"calls"`               // decided since
	Denied     int64            `json:"denied"`              // of these
	Undecided  int64            `json:"undecided"`           // of these, while the store did not answer
	WouldDeny  int64            `json:"would_deny"`          // calls that were allowed, and that some shadow would have denied
	Callers    *int64           `json:"callers"`             // estimated callers of these; nil: not known
	Confirmed  *int64           `json:"confirmed,omitempty"` // units, since; nil: no shadow depends on confirmations
	Limits     []ShadowLimit    `json:"limits"`
	Instances  []ShadowInstance `json:"instances"`  // that have counted
	Unanswered []Unanswered     `json:"unanswered"` // instances whose calls are missing
}

// Values of the member scope of answers.
const (
	ScopeInstance  = "instance"  // of one instance, which is alone or was named
	ScopeInstances = "instances" // of all that decide together
)

// ShadowLimit has the counts of calls that one limit would have denied.
type ShadowLimit struct {
	Name      string       `json:"name"`
	Limit     int64        `json:"limit"`
	WouldDeny int64        `json:"would_deny"`
	Callers   *int64       `json:"callers"`
	Hours     []ShadowSpan `json:"hours"`   // of the last 7 days that calls came in, the oldest first
	Minutes   []ShadowSpan `json:"minutes"` // of the last 60
}

// ShadowSpan has the counts of an hour or a minute.
type ShadowSpan struct {
	Start     time.Time `json:"start"`
	Calls     int64     `json:"calls"`
	WouldDeny int64     `json:"would_deny"`
	Callers   *int64    `json:"callers,omitempty"` // of an hour
}

// ShadowInstance is an instance that has counted.
type ShadowInstance struct {
	Instance string    `json:"instance"`
	Since    time.Time `json:"since"`
	Calls    int64     `json:"calls"`
}

// Unanswered is an instance whose counts are missing, and why.
type Unanswered struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Reason   string `json:"reason"`
}
