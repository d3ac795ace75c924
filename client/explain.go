package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/jsonscan"
)

// Because is the reason of the verdict in an Explanation.
type Because string

// The reasons.
const (
	BecauseOff        Because = "off"         // the policy is off
	BecauseOverride   Because = "override"    // an override
	BecauseCountry    Because = "country"     // the policy admits no numbers of the number's country
	BecauseNumberType Because = "number_type" // the policy admits no numbers of its type
	BecauseBlock      Because = "block"       // a block after a denial
	BecauseStore      Because = "store"       // the policy's on_store_error, while the store does not answer
	BecauseLimit      Because = "limit"       // a limit without room
	BecauseDerived    Because = "derived"     // another policy for a part of the identifier
	BecauseRoom       Because = "room"        // all limits have room
)

// Explanation explains why an identifier would be allowed or denied one unit now.
type Explanation struct {
	Policy     string
	Key        string // the hash under which the identifier is counted, in hex
	Allowed    bool
	WouldAllow bool `json:"would_allow"` // the verdict, regardless of the policy's mode
	Because    Because
	Detail     string        // Because in a sentence
	RetryAfter time.Duration // 0 when allowed, Never when no wait helps
	DeniedBy   []string      `json:"denied_by"` // the limits without room
	Mode       Mode
	Guarantee  string
	Degraded   bool // the store did not answer, so Limits and ResetAt are not known
	Limits     []LimitExplanation
	Override   *OverrideInForce // nil: there is none
	Block      *Block           // after an earlier denial; nil: there is none
	ResetAt    time.Time        `json:"reset_at"` // counts before this time were removed; zero: no reset
	Derived    []Explanation    // of the identifiers derived from this one
}

// LimitExplanation is the explanation of one limit.
type LimitExplanation struct {
	LimitDecision
	PolicyLimit int64 `json:"policy_limit"` // the policy's limit, if an override changes Limit
}

// OverrideInForce is an administrator's exception for an identifier.
type OverrideInForce struct {
	Prefix    string // of the identifiers that it applies to; empty: to this one
	Kind      Override
	Limits    []OverrideLimit // for OverrideLimits
	ExpiresAt time.Time       `json:"expires_at"` // zero: it has no end
	MadeAt    time.Time       `json:"made_at"`
	By        string          // name of the caller that made it; empty: not known
}

// OverrideLimit is a limit with another number of units.
type OverrideLimit struct {
	Name  string
	Limit int64
	Burst int64 // of a bucket; 0: the policy's burst
}

// Block denies until a time, whatever the counts.
type Block struct {
	Until   time.Time
	Strikes int64 // number of blocks in a row
}

// Explain returns why identifier would be allowed or denied now, with the state of every limit and all else that
// decides. It records nothing. If the service requires tokens, it needs one with the scope admin. Its error is a
// *CallError, also if the client fails open.
func (c *Client) Explain(ctx context.Context, policy, identifier string) (Explanation, error) {
	body, err := targetOf(policy, identifier)
	if err != nil {
		return Explanation{}, &CallError{"explain", RecordedNo, err}
	}
	var e Explanation
	err = c.direct(ctx, &direct{
		op: "explain", body: body, idempotent: true, recorded: func(error) Recorded { return RecordedNo },
		read: func(r *reply) error { return r.readExplanation(&e) },
	})
	return e, err
}

// readExplanation reads the answer to explain.
func (r *reply) readExplanation(e *Explanation) error {
	if r.Status != http.StatusOK {
		return r.problem()
	}
	var view explanationView
	if json.Unmarshal(r.Body, &view) != nil || !view.read(e) {
		*e = Explanation{}
		return r.unreadable()
	}
	return nil
}

// explanationView is an Explanation in the service's form: its members shadow those of the same name.
type explanationView struct {
	Explanation
	RetryAfter milliseconds      `json:"retry_after_ms"`
	Limits     []limitView       `json:"limits"`
	Derived    []explanationView `json:"derived"`
}

type limitView struct {
	LimitExplanation
	Window     milliseconds `json:"window_ms"`
	ResetAfter milliseconds `json:"reset_after_ms"`
	RetryAfter milliseconds `json:"retry_after_ms"`
	WouldDeny  *bool        `json:"would_deny"` // nil: the limit is not in shadow
}

// milliseconds is a time.Duration in JSON: null means Never.
type milliseconds time.Duration

// UnmarshalJSON reads a whole number of milliseconds, or null.
func (m *milliseconds) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*m = milliseconds(Never)
		return nil
	}
	ms, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || ms < 0 || ms > maxAnswerMS {
		return jsonscan.ErrUnreadable
	}
	*m = milliseconds(time.Duration(ms) * time.Millisecond)
	return nil
}

// read fills in e. It returns false if v is not an explanation.
func (v *explanationView) read(e *Explanation) bool {
	*e = v.Explanation
	e.RetryAfter = time.Duration(v.RetryAfter)
	for i := range v.Limits {
		l := v.Limits[i].LimitExplanation
		l.Window, l.ResetAfter = time.Duration(v.Limits[i].Window), time.Duration(v.Limits[i].ResetAfter)
		l.RetryAfter = time.Duration(v.Limits[i].RetryAfter)
		if would := v.Limits[i].WouldDeny; would != nil {
			l.Shadow, l.WouldDeny = true, *would
		}
		e.Limits = append(e.Limits, l)
	}
	for i := range v.Derived {
		var d Explanation
		if !v.Derived[i].read(&d) {
			return false
		}
		e.Derived = append(e.Derived, d)
	}
	return v.Because != ""
}
