package api

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// noShadow is the answer without shadows.
func noShadow(context.Context, string) encode.Shadow {
	return encode.Shadow{
		Scope: encode.ScopeInstance, Limits: []encode.ShadowLimit{},
		Instances: []encode.ShadowInstance{}, Unanswered: []encode.Unanswered{},
	}
}

// TestShadow compares the answers about shadows, and about missing instances, with those in testdata.
func TestShadow(t *testing.T) {
	tightened := policy.Policy{Name: "tightened", Limits: []policy.Limit{perMinute(3), perMinute(1)}}
	tightened.Limits[1].Name, tightened.Limits[1].Shadow = "next", true
	begun, two := time.Date(2026, 3, 1, 13, 0, 0, 123456789, time.FixedZone("", 3600)), int64(2)
	of := func(ctx context.Context, name string) encode.Shadow {
		if name != "tightened" {
			return noShadow(ctx, name)
		}
		hour := begun.UTC().Truncate(time.Hour)
		return encode.Shadow{
			Scope: encode.ScopeInstances, Version: 4, Since: &begun, Calls: 9, Denied: 1, Undecided: 1, WouldDeny: 3, Callers: &two,
			Limits: []encode.ShadowLimit{{
				Name: "next", WouldDeny: 3, Callers: &two,
				Hours:   []encode.ShadowSpan{{Start: hour, Calls: 9, WouldDeny: 3, Callers: &two}},
				Minutes: []encode.ShadowSpan{{Start: hour, Calls: 9, WouldDeny: 3}},
			}},
			Instances: []encode.ShadowInstance{
				{Instance: "one", Since: begun, Calls: 5}, {Instance: "two", Since: begun.Add(time.Minute), Calls: 4},
			},
			Unanswered: []encode.Unanswered{{Instance: "three", Address: "10.0.0.3:8100", Reason: "it did not answer"}},
		}
	}
	f := newFront(t, &Options{Shadow: of}, smsSend, tightened)
	get := func(path string) step { return step{method: http.MethodGet, path: path} }
	one := `{"policy":"tightened","identifier":"a"}`
	f.story("shadow-limits", []step{
		get("/v1/policies/tightened/shadow"),
		get("/v1/policies/sms-send/shadow"),
		get("/v1/policies/unknown/shadow"),
		{path: "/v1/policies/tightened/shadow", body: "{}"},
		get("/v1/policies/tightened"),
		{path: "/v1/take", body: one},
		{path: "/v1/take", body: one},
		{path: "/v1/check", body: one},
		{path: "/v1/explain", body: one},
		{path: "/v1/take", body: one},
		{path: "/v1/take", body: one},
		{path: "/v1/take", body: `{"policy":"tightened","identifier":"b","cost":2}`},
	})
}
