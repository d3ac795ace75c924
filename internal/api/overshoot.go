package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Bounds of the number of worst keys in an answer.
const (
	defaultTop = 20
	maxTop     = 100 // sketches are inexact about keys beyond these
)

// Overshoot is the answer of GET /v1/policies/{name}/overshoot: how far callers went past the limits of a policy, as
// counted by some instances. Times may have any zone and precision. The policy is filled in.
type Overshoot struct {
	Policy       string       `json:"policy"`
	Scope        string       `json:"scope"`            // encode.ScopeInstance or encode.ScopeInstances
	Since        *time.Time   `json:"since"`            // when counting began; nil: no instance answered
	Attempts     int64        `json:"attempts"`         // beyond the limit
	Units        int64        `json:"units"`            // that they asked for
	Episodes     int64        `json:"episodes"`         // stays of a key past its limit
	KeysOver     int64        `json:"keys_over"`        // keys that are over their limit now
	Dropped      int64        `json:"dropped_attempts"` // of the attempts, those that no episode holds
	Distribution Distribution `json:"distribution"`
	WorstSince   *time.Time   `json:"worst_since"` // nil likewise
	Worst        []WorstKey   `json:"worst"`       // the worst first

	Instances  []OvershootInstance `json:"instances"`
	Unanswered []encode.Unanswered `json:"unanswered"` // instances whose attempts are missing
}

// OvershootInstance is an instance that counted.
type OvershootInstance struct {
	Instance string    `json:"instance"`
	Since    time.Time `json:"since"`
	Attempts int64     `json:"attempts"`
}

// Distribution has the distributions over the episodes of a policy.
type Distribution struct {
	Attempts   Spread `json:"attempts"`    // attempts of an episode
	TimesLimit Spread `json:"times_limit"` // how many times its limit a key asked for in an episode
}

// Spread is the distribution of values.
type Spread struct {
	Count   int64          `json:"count"`
	P50     float64        `json:"p50"`
	P90     float64        `json:"p90"`
	P99     float64        `json:"p99"`
	Max     float64        `json:"max"`
	Buckets []SpreadBucket `json:"buckets"`
}

// SpreadBucket is the number of values up to a bound.
type SpreadBucket struct {
	AtMost float64 `json:"at_most"`
	Count  int64   `json:"count"`
}

// WorstKey is a key that is often past its limit.
type WorstKey struct {
	Key      string `json:"key"`      // in hex
	Attempts int64  `json:"attempts"` // at least so many
	Error    int64  `json:"error"`    // and at most so many more
}

// overshootQuery has the parameters of GET /v1/policies/{name}/overshoot.
type overshootQuery struct {
	policy   string
	top      int
	instance string // empty: all
}

// decodeOvershoot reads the name in the path, and top and instance in the query.
func decodeOvershoot(r *http.Request, m *scratch) (q overshootQuery, err error) {
	if q.policy, err = decodePolicyName(r, m); err != nil {
		return q, err
	}
	if q.instance, err = decodeInstance(r); err != nil {
		return q, err
	}
	given, found := r.URL.Query()["top"]
	if !found {
		q.top = defaultTop
		return q, nil
	}
	q.top, err = strconv.Atoi(given[0])
	if err != nil || len(given) > 1 || q.top < 1 || q.top > maxTop {
		return q, decode.Wrong("top", "It must be given once, as an integer from 1 to "+strconv.Itoa(maxTop)+".")
	}
	return q, nil
}

// decodeInstance reads the parameter instance, empty for all.
func decodeInstance(r *http.Request) (string, error) {
	given, found := r.URL.Query()["instance"]
	switch {
	case !found:
		return "", nil
	case len(given) > 1 || given[0] == "":
		return "", decode.Wrong("instance", "It must be given once, as the id of an instance, the beginning of one, or an address.")
	}
	return given[0], nil
}

// UnknownInstance returns the error of a query for an instance that is not one of ids, or ambiguous.
func UnknownInstance(ids []string) error {
	return decode.Wrong("instance", "It must be the id of one instance, or begin as no other id does, or be the address for peers. "+
		"Instances: "+strings.Join(ids, ", ")+".")
}

func (s *Server) overshoot(ctx context.Context, q overshootQuery) (answer, error) {
	if _, inForce := s.engine.Policy(q.policy); !inForce {
		return nil, limiter.ErrUnknownPolicy
	}
	o, err := s.opts.Overshoot(ctx, q.policy, q.top, q.instance)
	if err != nil {
		return nil, err
	}
	o.Policy = q.policy
	for _, t := range []*time.Time{o.Since, o.WorstSince} {
		if t != nil {
			*t = encode.ToMilliseconds(*t)
		}
	}
	for i := range o.Instances {
		o.Instances[i].Since = encode.ToMilliseconds(o.Instances[i].Since)
	}
	return encode.Document{Content: o}, nil
}
