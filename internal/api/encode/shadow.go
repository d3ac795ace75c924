package encode

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Shadow counts calls that shadows of one policy would have denied: its limits that are, or all of
// them in mode shadow. It is the answer of GET /v1/policies/{name}/shadow.
type Shadow struct {
	Policy     string           `json:"policy"`
	Mode       policy.Mode      `json:"mode"`
	Scope      string           `json:"scope"`               // whose calls: ScopeInstance or ScopeInstances
	Version    int64            `json:"version,omitempty"`   // of the policies in force; 0: they have none
	Since      *time.Time       `json:"since"`               // when counting began; nil: nothing is in shadow
	Calls      int64            `json:"calls"`               // decided since
	Denied     int64            `json:"denied"`              // of these
	Undecided  int64            `json:"undecided"`           // of these, while the store did not answer
	WouldDeny  int64            `json:"would_deny"`          // calls that were allowed, and that some shadow would have denied
	Callers    *int64           `json:"callers"`             // of these, about; nil: not known
	Confirmed  *int64           `json:"confirmed,omitempty"` // units, since; nil: no shadow depends on confirmations
	Limits     []ShadowLimit    `json:"limits"`
	Instances  []ShadowInstance `json:"instances"`  // that this was counted by
	Unanswered []Unanswered     `json:"unanswered"` // instances whose calls are missing
}

// Whose figures an answer has.
const (
	ScopeInstance  = "instance"  // of one that is alone, or was asked for
	ScopeInstances = "instances" // of all that decide together
)

// ShadowLimit counts calls that one of the limits would have denied.
type ShadowLimit struct {
	Name      string       `json:"name"`
	Limit     int64        `json:"limit"`
	WouldDeny int64        `json:"would_deny"`
	Callers   *int64       `json:"callers"`
	Hours     []ShadowSpan `json:"hours"`   // of the last 7 days that calls came in, the oldest first
	Minutes   []ShadowSpan `json:"minutes"` // of the last 60
}

// ShadowSpan is an hour or a minute.
type ShadowSpan struct {
	Start     time.Time `json:"start"`
	Calls     int64     `json:"calls"`
	WouldDeny int64     `json:"would_deny"`
	Callers   *int64    `json:"callers,omitempty"` // of an hour
}

// ShadowInstance is an instance that counted.
type ShadowInstance struct {
	Instance string    `json:"instance"`
	Since    time.Time `json:"since"`
	Calls    int64     `json:"calls"`
}

// Unanswered is an instance that counted something else, or did not say what.
type Unanswered struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Reason   string `json:"reason"`
}
