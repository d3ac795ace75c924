package api

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// prefix lets three codes an hour pass that nobody confirms. The conversion that it derives lets two pass, and goes on
// while half are confirmed.
var (
	prefix = policy.Policy{
		Name:   "sms-prefix",
		Limits: []policy.Limit{{Name: "unconfirmed", Algorithm: "sliding-log", Limit: 3, Window: time.Hour, Until: policy.UntilConfirmed}},
		Derive: []policy.Derivation{{Policy: "converted", From: policy.PartWhole}},
	}
	converted = policy.Policy{Name: "converted", Limits: []policy.Limit{
		{Name: "conversion", Algorithm: "conversion", Limit: 2, Window: time.Hour, MinConversion: 50, Probe: time.Minute},
	}}
)

func TestConfirm(t *testing.T) {
	const (
		take    = `{"policy":"sms-prefix","identifier":"+49151"}`
		receipt = `{"receipt":"RECEIPT"}`
		confirm = `{"op":"confirm","receipt":"RECEIPT"}`
	)
	for name, steps := range map[string][]step{
		"confirm": {
			{path: "/v1/take", body: take},
			{path: "/v1/take", body: take},
			{at: time.Second, path: "/v1/check", body: take}, // 0 of 2 are confirmed
			{at: 2 * time.Second, path: "/v1/confirm", body: receipt},
			{at: 2 * time.Second, path: "/v1/confirm", body: receipt},
			{at: 3 * time.Second, path: "/v1/refund", body: receipt},
			{at: 3 * time.Second, path: "/v1/check", body: take}, // 1 of 2
			{at: 4 * time.Second, path: "/v1/record", body: one},
			{at: 4 * time.Second, path: "/v1/confirm", body: receipt}, // no limit of that goes by it
			{at: 5 * time.Second, path: "/v1/take", body: take},
			{at: 6 * time.Second, path: "/v1/refund", body: receipt},
			{at: 7 * time.Second, path: "/v1/confirm", body: receipt},
			{at: 3 * time.Hour, path: "/v1/confirm", body: receipt}, // its window is over
			{at: 3 * time.Hour, path: "/v1/confirm", body: `{"receipt":"b3BhcXVl"}`},
		},
		"batch-of-confirmations": {
			{path: "/v1/take", body: take},
			{path: "/v1/batch", body: operationsOf(confirm)},
			{at: time.Second, path: "/v1/batch", body: operationsOf(confirm,
				`{"op":"confirm","receipt":"b3BhcXVl"}`, `{"op":"confirm"}`, `{"op":"confirm","receipt":""}`,
				`{"op":"confirm","receipt":"a","policy":"sms-prefix"}`, `{"op":"take","policy":"sms-send","identifier":"a","receipt":"a"}`,
				`{"op":"check","policy":"sms-prefix","identifier":"+49151"}`,
			)},
			{path: "/v1/take", body: one},
			{path: "/v1/batch", body: operationsOf(confirm)},
		},
	} {
		t.Run(name, func(t *testing.T) { newFront(t, nil, smsSend, prefix, converted).story(name, steps) })
	}
}
