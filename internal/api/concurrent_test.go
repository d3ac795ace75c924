package api

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// slots permits two requests at the same time.
var slots = policy.Policy{Name: "export-slots", Limits: []policy.Limit{
	{Name: "slots", Algorithm: "concurrent", Limit: 2, Window: 30 * time.Second},
}}

// TestConcurrent compares the answers about concurrent units, until their release, with those in testdata.
func TestConcurrent(t *testing.T) {
	const (
		take    = `{"policy":"export-slots","identifier":"anna"}`
		beside  = `{"demands":[` + take + `,` + one + `]}`
		receipt = `{"receipt":"RECEIPT"}`
		release = `{"receipt":"RELEASE"}`
		hold    = `{"policy":"export-slots","identifier":"anna","reserve_ms":60000}`
		held    = `{"receipt":"RESERVATION"}`
	)
	newFront(t, nil, smsSend, slots).story("concurrent", []step{
		{path: "/v1/take", body: take},
		{at: time.Second, path: "/v1/take", body: beside},
		{at: 2 * time.Second, path: "/v1/take", body: take}, // until the first hold ends
		{at: 3 * time.Second, path: "/v1/refund", body: release},
		{at: 3 * time.Second, path: "/v1/refund", body: release}, // nothing twice
		{at: 3 * time.Second, path: "/v1/check", body: beside},   // what counts for an hour stays
		{at: 4 * time.Second, path: "/v1/refund", body: receipt},
		{at: 5 * time.Second, path: "/v1/check", body: hold},
		{at: 5 * time.Second, path: "/v1/refund", body: held},
		{at: 5 * time.Second, path: "/v1/refund", body: held},
		{at: 6 * time.Second, path: "/v1/take", body: take, headers: []string{"Idempotency-Key", "5f0c"}},
		{at: 6 * time.Second, path: "/v1/take", body: take, headers: []string{"Idempotency-Key", "5f0c"}}, // the same release
		{at: 5 * time.Minute, path: "/v1/refund", body: release},                                          // its hold is over
		{method: "GET", path: "/v1/policies/export-slots"},
	})
}
