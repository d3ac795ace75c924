package api

import (
	"context"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Bounds of how many of the worst keys are told.
const (
	defaultTop = 20
	maxTop     = 100 // the hundredth is far from the worst, and a sketch is less sure of it
)

// Overshoot is how far callers went past the limits of one policy, as some instances
// saw it.
type Overshoot struct {
	Scope      string // whose: encode.ScopeInstance or encode.ScopeInstances
	Instances  []OvershootInstance
	Unanswered []encode.Unanswered // instances whose attempts are missing

	Since    time.Time // when counting began
	Attempts int64     // beyond the limit
	Units    int64     // that they asked for
	Episodes int64     // stays of a key past its limit
	KeysOver int64     // keys that are over their limit now
	Dropped  int64     // of the attempts, those that no episode holds

	PerEpisode Spread // attempts of an episode
	TimesLimit Spread // how many times its limit a key asked for in an episode

	WorstSince time.Time
	Worst      []WorstKey // the worst first
}

// OvershootInstance is an instance that counted.
type OvershootInstance struct {
	Instance string    `json:"instance"`
	Since    time.Time `json:"since"`
	Attempts int64     `json:"attempts"`
}

// Spread is how values are spread.
type Spread struct {
	Count   int64          `json:"count"`
	P50     float64        `json:"p50"`
	P90     float64        `json:"p90"`
	P99     float64        `json:"p99"`
	Max     float64        `json:"max"`
	Buckets []SpreadBucket `json:"buckets"` // nil where Count is 0
}

// SpreadBucket is how many values are at most some bound.
type SpreadBucket struct {
	AtMost float64 `json:"at_most"`
	Count  int64   `json:"count"`
}

// WorstKey is a key that is often past its limit.
type WorstKey struct {
	Key      store.Key
	Attempts int64 // at least so many
	Error    int64 // and at most so many more
}

// overshootView is the answer of GET /v1/policies/{name}/overshoot.
type overshootView struct {
	Policy       string           `json:"policy"`
	Scope        string           `json:"scope"`
	Since        *time.Time       `json:"since"` // nil: no instance answered
	Attempts     int64            `json:"attempts"`
	Units        int64            `json:"units"`
	Episodes     int64            `json:"episodes"`
	KeysOver     int64            `json:"keys_over"`
	Dropped      int64            `json:"dropped_attempts"`
	Distribution distributionView `json:"distribution"`
	WorstSince   *time.Time       `json:"worst_since"`
	Worst        []worstView      `json:"worst"`

	Instances  []OvershootInstance `json:"instances"`
	Unanswered []encode.Unanswered `json:"unanswered"`
}

type distributionView struct {
	Attempts   Spread `json:"attempts"`
	TimesLimit Spread `json:"times_limit"`
}

type worstView struct {
	Key      string `json:"key"`
	Attempts int64  `json:"attempts"`
	Error    int64  `json:"error"`
}

// overshootQuery is what GET /v1/policies/{name}/overshoot asks for.
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

// decodeInstance reads which instance is asked for in the query, empty for all.
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

// UnknownInstance returns the error of a query for an instance that is none of these, or may be several.
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
	return encode.Document{Content: viewOvershoot(q.policy, &o)}, nil
}

func viewOvershoot(policy string, o *Overshoot) overshootView {
	view := overshootView{
		Policy: policy, Scope: o.Scope, Since: since(o.Since),
		Attempts: o.Attempts, Units: o.Units, Episodes: o.Episodes, KeysOver: o.KeysOver, Dropped: o.Dropped,
		Distribution: distributionView{Attempts: o.PerEpisode.view(), TimesLimit: o.TimesLimit.view()},
		WorstSince:   since(o.WorstSince), Worst: make([]worstView, len(o.Worst)),
	}
	for i := range o.Instances {
		o.Instances[i].Since = encode.ToMilliseconds(o.Instances[i].Since)
	}
	view.Instances, view.Unanswered = append([]OvershootInstance{}, o.Instances...), append([]encode.Unanswered{}, o.Unanswered...)
	for i, w := range o.Worst {
		view.Worst[i] = worstView{Key: hex.EncodeToString(w.Key.Bytes()), Attempts: w.Attempts, Error: w.Error}
	}
	return view
}

// since returns t as it is shown; nil if it is zero.
func since(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = encode.ToMilliseconds(t)
	return &t
}

// view returns s with a list of buckets even where there are none.
func (s Spread) view() Spread {
	if s.Buckets == nil {
		s.Buckets = []SpreadBucket{}
	}
	return s
}
