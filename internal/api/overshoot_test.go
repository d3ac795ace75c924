package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// overshot is a report on the policies in force, with the requested number of keys.
type overshot struct{ top []int }

func (o *overshot) of(_ context.Context, policy string, top int, instance string) (Overshoot, error) {
	switch {
	case policy == "lost":
		return Overshoot{}, limiter.ErrUnknownPolicy
	case instance == "nobody":
		return Overshoot{}, UnknownInstance([]string{"one", "two"})
	}
	o.top = append(o.top, top)
	begun := time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("", 3600))
	if policy == "api" {
		none := Spread{Buckets: []SpreadBucket{}}
		return Overshoot{
			Scope: encode.ScopeInstance, Since: &begun, WorstSince: &begun, Distribution: Distribution{none, none},
			Worst: []WorstKey{}, Instances: []OvershootInstance{}, Unanswered: []encode.Unanswered{},
		}, nil
	}
	later, five := begun.Add(time.Hour), Spread{Count: 1, P50: 5, P90: 5, P99: 5, Max: 5, Buckets: []SpreadBucket{{5, 1}}}
	one := Spread{Count: 1, P50: 2.5, P90: 2.5, P99: 2.5, Max: 2.5, Buckets: []SpreadBucket{{2, 0}, {2.5, 1}}}
	return Overshoot{
		Scope:      encode.ScopeInstances,
		Instances:  []OvershootInstance{{"one", begun, 3}, {"two", begun.Add(time.Minute), 2}},
		Unanswered: []encode.Unanswered{{Instance: "three", Address: "10.0.0.3:8100", Reason: "it did not answer"}},
		Since:      &begun, Attempts: 5, Units: 6, Episodes: 1, KeysOver: 2, Dropped: 3,
		Distribution: Distribution{five, one},
		WorstSince:   &later,
		Worst:        []WorstKey{{hex.EncodeToString(store.KeyFrom(sha256.Sum256([]byte("0"))).Bytes()), 4, 1}},
	}, nil
}

// TestOvershoot compares the answers about overshoot, and to wrong queries, with those in testdata.
func TestOvershoot(t *testing.T) {
	var o overshot
	lost := tail
	lost.Name = "lost"
	f := newFront(t, &Options{Overshoot: o.of}, smsSend, tail, lost)
	get := func(path string) step { return step{method: http.MethodGet, path: path} }
	f.story("overshoot", []step{
		get("/v1/policies/sms-send/overshoot"),
		get("/v1/policies/api/overshoot?top=100"),
		get("/v1/policies/api/overshoot?top=1&pretty"),
		get("/v1/policies/api/overshoot?instance=nobody"),
		{method: http.MethodHead, path: "/v1/policies/api/overshoot"},
		get("/v1/policies/unknown/overshoot"),
		get("/v1/policies/lost/overshoot"),
		get("/v1/policies/%25zz/overshoot"),
		get("/v1/policies/api/overshoot?top=0"),
		{path: "/v1/policies/api/overshoot", body: "{}"},
	})
	for _, query := range []string{
		"top=101", "top=-1", "top=", "top", "top=1.5", "top=1e2", "top=+49secret", "top=1&top=2", "top=99999999999999999999",
	} {
		p := readProblem(t, f.do(http.MethodGet, "/v1/policies/api/overshoot?"+query, ""))
		if p.Status != http.StatusBadRequest || p.Field != "top" || strings.Contains(p.Detail, "secret") {
			t.Errorf("%s: %+v", query, p)
		}
	}
	for _, query := range []string{"instance=", "instance=one&instance=two"} {
		if p := readProblem(t, f.do(http.MethodGet, "/v1/policies/api/overshoot?"+query, "")); p.Field != "instance" {
			t.Errorf("%s: %+v", query, p)
		}
	}
	if strings.Contains(f.log.String(), "secret") {
		t.Errorf("a query is in the log: %s", f.log)
	}
	if want := []int{20, 100, 1, 20}; len(o.top) != len(want) || o.top[0] != want[0] || o.top[1] != want[1] || o.top[2] != want[2] {
		t.Errorf("asked for %v keys, want %v", o.top, want)
	}
}

// TestOvershootIsUnknownWhereNobodyCounts holds that the route is missing without counts.
func TestOvershootIsUnknownWhereNobodyCounts(t *testing.T) {
	p := readProblem(t, newFront(t, nil, tail).do(http.MethodGet, "/v1/policies/api/overshoot", ""))
	if p.Status != http.StatusNotFound || p.Field != "" {
		t.Errorf("%+v", p)
	}
}
