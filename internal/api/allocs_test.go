//go:build !race

package api

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestTakesHardlyAllocate holds that a take allocates what docs/performance.md says: the body as a string, the limits'
// verdicts, the receipt, the headers, the request's id and, without a connection, chi's parts. The race detector drops
// pooled memory.
func TestTakesHardlyAllocate(t *testing.T) {
	const generous, full = policy.MaxLimit, 1
	callers := keyring(t, "decider scopes: [decide], policies: [api, sms-send]")
	for _, c := range []struct {
		path, body string
		limit      int64
		keyring    *auth.Keyring
		most       float64 // for each decision
	}{
		{"/v1/take", oneTail, generous, nil, 9},
		{"/v1/take", oneTail, generous, callers, 9}, // who asks is found out in place
		{"/v1/batch", operationsOf(slices.Repeat([]string{oneOp}, 100)...), generous, nil, 1.3},
		{"/v1/batch", operationsOf(slices.Repeat([]string{oneOp}, 100)...), generous, callers, 1.3},
		{"/v1/batch", operationsOf(slices.Repeat([]string{oneOp}, 100)...), full, nil, 0.3},
	} {
		path := c.path
		f := newFront(t, &Options{Keyring: c.keyring}, policy.Policy{Name: "api", Limits: []policy.Limit{
			{Algorithm: "sliding-tail", Limit: c.limit, Window: time.Minute},
		}})
		decisions := float64(max(1, strings.Count(c.body, `"op"`)))
		ask := f.repeat(path, c.body, bearer("decider")...)
		ask() // the first one makes what the others find
		if got := testing.AllocsPerRun(100, ask) / decisions; got > c.most {
			t.Errorf("%s of %d: %.2f allocations for a decision, want %.1f at most", path, c.limit, got, c.most)
		}
	}
}

// TestTracesThatNobodySeesAllocateNothing holds that a take that is not sampled allocates no more than one without
// tracing.
func TestTracesThatNobodySeesAllocateNothing(t *testing.T) {
	off := 0.0
	for i, c := range unseen {
		ask := forTraces(t, c.sampler).repeat("/v1/take", oneTail, c.headers...)
		ask()
		got := testing.AllocsPerRun(100, ask)
		if i == 0 {
			off = got
		}
		if got > off {
			t.Errorf("%s: %v allocations, and %v with nothing traced", c.name, got, off)
		}
	}
}
