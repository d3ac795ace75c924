package client

import (
	"context"
	"net/http"
	"time"
)

// Because is what decides, in an Explanation.
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
	WouldAllow bool // the verdict, whatever the mode makes of it
	Because    Because
	Detail     string        // Because in a sentence
	RetryAfter time.Duration // 0 when allowed, Never when no wait helps
	DeniedBy   []string      // the limits that have no room
	Mode       Mode
	Guarantee  string
	Degraded   bool // the store did not answer: Limits and ResetAt are not known
	Limits     []LimitExplanation
	Override   *OverrideInForce // nil: there is none
	Block      *Block           // that follows a denial; nil: there is none
	ResetAt    time.Time        // up to when what was counted is forgotten; zero: nothing is
	Derived    []Explanation    // the same of what the policy derives from the identifier
}

// LimitExplanation is what one limit says.
type LimitExplanation struct {
	LimitDecision
	PolicyLimit int64 // what the policy gives, where an override gives another Limit
}

// OverrideInForce is what an administrator has decided otherwise for an identifier.
type OverrideInForce struct {
	Prefix    string // of the identifiers that it is for; empty: it is for this one
	Kind      Override
	Limits    []OverrideLimit // of OverrideLimits
	ExpiresAt time.Time       // zero: it has no end
	MadeAt    time.Time
	By        string // the name of the caller who made it; empty: the service knows none
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

// Explain tells why identifier would be allowed or denied now: every limit's state, and what else
// decides. It records nothing. It needs a token with the scope admin, where the service asks for
// tokens. Its error is a *CallError; a client that fails open gives one, too.
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
	s := r.decoder()
	s.readExplanation(e)
	s.End()
	if s.Err() != nil {
		return r.unreadable()
	}
	return nil
}

func (s decoder) readExplanation(e *Explanation) {
	*e = Explanation{}
	s.Object(func(name []byte) { s.readExplanationMember(name, e) })
	if e.Because == "" {
		s.Fail()
	}
}

func (s decoder) readExplanationMember(name []byte, e *Explanation) {
	switch string(name) {
	case "policy":
		e.Policy = s.Name()
	case "key":
		e.Key = string(s.Text())
	case "allowed":
		e.Allowed = s.Boolean()
	case "would_allow":
		e.WouldAllow = s.Boolean()
	case "because":
		e.Because = Because(s.Name())
	case "detail":
		e.Detail = string(s.Text())
	case "retry_after_ms":
		e.RetryAfter = s.wait()
	case "denied_by":
		s.Array(func() { e.DeniedBy = append(e.DeniedBy, s.Name()) })
	case "mode":
		e.Mode = Mode(s.Name())
	case "guarantee":
		e.Guarantee = s.Name()
	case "degraded":
		e.Degraded = s.Boolean()
	case "limits":
		s.Array(func() { e.Limits = append(e.Limits, s.readLimitExplanation()) })
	case "override":
		e.Override = s.readOverride()
	case "block":
		e.Block = s.readBlock()
	case "reset_at":
		e.ResetAt = s.time()
	case "derived":
		s.Array(func() {
			var d Explanation
			s.readExplanation(&d)
			e.Derived = append(e.Derived, d)
		})
	default:
		s.Skip()
	}
}

func (s decoder) readLimitExplanation() (l LimitExplanation) {
	s.Object(func(name []byte) {
		if string(name) == "policy_limit" {
			l.PolicyLimit = s.Integer()
			return
		}
		s.readLimitMember(name, &l.LimitDecision)
	})
	return l
}

func (s decoder) readOverride() *OverrideInForce {
	if s.Null() {
		return nil
	}
	o := new(OverrideInForce)
	s.Object(func(name []byte) {
		switch string(name) {
		case "prefix":
			o.Prefix = string(s.Text())
		case "kind":
			o.Kind = Override(s.Name())
		case "limits":
			s.Array(func() { o.Limits = append(o.Limits, s.readOverrideLimit()) })
		case "expires_at":
			o.ExpiresAt = s.time()
		case "made_at":
			o.MadeAt = s.time()
		case "by":
			o.By = string(s.Text())
		default:
			s.Skip()
		}
	})
	return o
}

func (s decoder) readOverrideLimit() (l OverrideLimit) {
	s.Object(func(name []byte) {
		switch string(name) {
		case "name":
			l.Name = s.Name()
		case "limit":
			l.Limit = s.Integer()
		case "burst":
			l.Burst = s.Integer()
		default:
			s.Skip()
		}
	})
	return l
}

func (s decoder) readBlock() *Block {
	if s.Null() {
		return nil
	}
	b := new(Block)
	s.Object(func(name []byte) {
		switch string(name) {
		case "until":
			b.Until = s.time()
		case "strikes":
			b.Strikes = s.Integer()
		default:
			s.Skip()
		}
	})
	return b
}

// time returns the time that is next: zero for null.
func (s decoder) time() time.Time {
	if s.Null() {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, string(s.Text()))
	if err != nil {
		s.Fail()
	}
	return t
}
