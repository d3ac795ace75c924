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

// Explanation is why an identifier would be allowed or denied one unit now.
type Explanation struct {
	Policy     string
	Key        string // the hash that the identifier is counted under, in hex
	Allowed    bool
	WouldAllow bool `json:"would_allow"` // the verdict, regardless of the policy's mode
	Because    Because
	Detail     string        // Because in a sentence
	RetryAfter time.Duration // 0 when allowed, Never when no wait helps
	DeniedBy   []string      `json:"denied_by"` // the limits that have no room
	Mode       Mode
	Guarantee  string
	Degraded   bool // the store did not answer: Limits and ResetAt are not known
	Limits     []LimitExplanation
	Override   *OverrideInForce // nil: there is none
	Block      *Block           // that follows a denial; nil: there is none
	ResetAt    time.Time        `json:"reset_at"` // up to when counts are forgotten; zero: none are
	Derived    []Explanation    // the same for the identifiers derived from this one
}

// LimitExplanation is the explanation of one limit.
type LimitExplanation struct {
	LimitDecision
	PolicyLimit int64 `json:"policy_limit"` // the policy's limit, if an override gives another Limit
}

// OverrideInForce is an administrator's exception for an identifier.
type OverrideInForce struct {
	Prefix    string // of the identifiers that it is for; empty: it is for this one
	Kind      Override
	Limits    []OverrideLimit // of OverrideLimits
	ExpiresAt time.Time       `json:"expires_at"` // zero: it has no end
	MadeAt    time.Time       `json:"made_at"`
	By        string          // name of the caller that made it; empty: the service knows none
}

// OverrideLimit is a limit that holds another number of units.
type OverrideLimit struct {
	Name  string
	Limit int64
	Burst int64 // of a bucket; 0: as the policy has it
}

// Block denies until a time, whatever is counted.
type Block struct {
	Until   time.Time
	Strikes int64 // how many there were in a row
}

// Explain returns why identifier would be allowed or denied now: the state of every limit, and everything else that
// decides. It records nothing. It needs a token with the scope admin, where the service asks for tokens. Its error is a
// *CallError; a client that fails open gives one, too.
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

// explanationView is an Explanation as the service writes it: its members shadow those of the same name.
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
	WouldDeny  *bool        `json:"would_deny"` // nil: it is no shadow
}

// milliseconds are a time.Duration: Never for null.
type milliseconds time.Duration

// UnmarshalJSON reads a whole number of them.
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
