package api

import (
	"net/http"
	"testing"
	"time"
)

const (
	one     = `{"policy":"sms-send","identifier":"+4915112345678"}`
	oneTail = `{"policy":"api","identifier":"+4915112345678"}`
	oneOp   = `{"op":"take","policy":"api","identifier":"+4915112345678"}`
)

// TestStories compares the answers to stories, request by request, with those in testdata.
func TestStories(t *testing.T) {
	shadowed := `{"policy":"shadow","identifier":"a"}`
	for name, steps := range map[string][]step{
		"take-until-denied": {
			{path: "/v1/check", body: one},
			{path: "/v1/take", body: one},
			{at: 10 * time.Second, path: "/v1/take", body: `{"policy":"sms-send","identifier":"+4915112345678","cost":2}`},
			{at: 11 * time.Second, path: "/v1/check", body: one},
			{at: 12500 * time.Millisecond, path: "/v1/take", body: one},
			{at: time.Hour, path: "/v1/take", body: one},
			{at: 2 * time.Hour, path: "/v1/take", body: one},
		},
		"record-past-the-limit": {
			{path: "/v1/record", body: `{"policy":"sms-send","identifier":"a","cost":3}`},
			{path: "/v1/record", body: `{"policy":"sms-send","identifier":"a","cost":5}`},
			{path: "/v1/take", body: `{"policy":"sms-send","identifier":"a"}`},
		},
		"reset": {
			{path: "/v1/take", body: `{"policy":"sms-send","identifier":"+4915112345678","cost":3}`},
			{path: "/v1/take", body: one},
			{path: "/v1/reset", body: one},
			{at: time.Second, path: "/v1/take", body: one},
			{path: "/v1/reset", body: `{"policy":"sms-send","identifier":"never seen"}`},
			{path: "/v1/reset", body: `{"policy":"nothing","identifier":"a"}`},
			{path: "/v1/reset", body: `{"policy":"sms-send","identifier":"a","cost":1}`},
		},
		"demands": {
			{path: "/v1/take", body: `{"demands":[` + oneTail + `]}`},
			{path: "/v1/take", body: `{"demands":[{"policy":"closed","identifier":"a"}]}`},
			{path: "/v1/take", body: `{"demands":[{"policy":"nothing","identifier":"a"}]}`},
			{path: "/v1/take", body: `{"demands":[{"policy":"api","identifier":""}]}`},
		},
		"limit-zero": {{path: "/v1/take", body: `{"policy":"closed","identifier":"a","cost":7}`}},
		"shadow":     {{path: "/v1/take", body: shadowed}, {path: "/v1/take", body: shadowed}},
		"off":        {{path: "/v1/take", body: `{"policy":"off","identifier":"a"}`}},
		"policies":   {{method: "GET", path: "/v1/policies"}},
		"policy": {
			{method: "GET", path: "/v1/policies/sms-send"},
			{method: "GET", path: "/v1/policies/sms%2Dsend"},
			{method: "GET", path: "/v1/policies/nothing"},
		},
		"health": {{method: "GET", path: "/healthz"}, {method: "GET", path: "/readyz"}, {method: "HEAD", path: "/healthz"}},
		"bucket": {
			{path: "/v1/take", body: `{"policy":"bucket","identifier":"a"}`},
			{at: time.Second, path: "/v1/take", body: `{"policy":"bucket","identifier":"a"}`},
			{at: 2 * time.Second, path: "/v1/take", body: `{"policy":"bucket","identifier":"a"}`},
			{at: 2 * time.Second, path: "/v1/take", body: `{"policy":"bucket","identifier":"a","cost":3}`},
			{at: 2 * time.Second, path: "/v1/record", body: `{"policy":"bucket","identifier":"a","cost":3}`},
		},
		"monthly": {{path: "/v1/take", body: `{"policy":"monthly","identifier":"a"}`}},
		"blocks": {
			{path: "/v1/take", body: `{"policy":"blocks","identifier":"a"}`},
			{path: "/v1/take", body: `{"policy":"blocks","identifier":"a"}`},
			{at: 2 * time.Minute, path: "/v1/take", body: `{"policy":"blocks","identifier":"a"}`},
			{at: 2 * time.Minute, path: "/v1/take", body: `{"demands":[{"policy":"blocks","identifier":"a"},` + one + `]}`},
			{at: 2 * time.Minute, path: "/v1/reset", body: `{"policy":"blocks","identifier":"a"}`},
			{at: 3 * time.Minute, path: "/v1/take", body: `{"policy":"blocks","identifier":"a"}`},
		},
		"wrong-routes": wrongRoutes(),
	} {
		t.Run(name, func(t *testing.T) {
			newFront(t, nil, smsSend, tail, closed, shadow, off, cluster, bucket, monthly, blocks).story(name, steps)
		})
	}
}

func wrongRoutes() []step {
	return []step{
		{method: "GET", path: "/v1/take"},
		{method: "POST", path: "/v1/policies", body: "{}"},
		{method: "DELETE", path: "/v1/policies/sms-send"},
		{method: "BREW", path: "/v1/take"},
		{method: "BREW", path: "/nowhere"},
		{method: "GET", path: "/"},
		{method: "GET", path: "/v1/policies/"},
		{method: "GET", path: "/v1/policies/a/b"},
		{method: "GET", path: "/v1/batch"},
		{method: "GET", path: "/v1/refund"},
		{method: "GET", path: "/metrics"},
	}
}

// TestServesItsDocument holds that the OpenAPI document is served.
func TestServesItsDocument(t *testing.T) {
	res := newFront(t, nil).do(http.MethodGet, "/openapi.yaml", "")
	if got := bodyOf(t, res); got != string(openAPI) || res.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d bytes of %s", len(got), res.Header.Get("Content-Type"))
	}
}

// TestServesMetricsWhereThereAre holds that /metrics is served by the given handler.
func TestServesMetricsWhereThereAre(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })
	res := newFront(t, &Options{Metrics: metrics}).do(http.MethodGet, "/metrics", "")
	if got := bodyOf(t, res); res.StatusCode != http.StatusOK || got != "up 1\n" {
		t.Errorf("%d %q", res.StatusCode, got)
	}
}
