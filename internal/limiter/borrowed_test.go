package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestFailuresStayWithTheirCalls has calls after one that failed, of one demand and of
// several, which borrow the same memory.
func TestFailuresStayWithTheirCalls(t *testing.T) {
	s := embedded.New(nil)
	e := limiter.New(s, nil)
	bucket, log := policyOf("token-bucket", 100, time.Hour), policyOf("sliding-log", 100, time.Hour)
	bucket.Name, log.Name = "bucket", "log"
	if err := e.SetPolicies([]policy.Policy{bucket, log}); err != nil {
		t.Fatal(err)
	}
	damaged, err := e.KeyOf("bucket", "somebody")
	if err != nil {
		t.Fatal(err)
	}
	cell := store.CellWrite{Version: store.EventID{1}, Value: []byte("no cell")}
	if err := s.Write(t.Context(), &store.Write{Key: damaged, Cell: &cell}); err != nil {
		t.Fatal(err)
	}
	take := func(policies ...string) error {
		call := limiter.Call{Op: count.OpTake}
		for _, name := range policies {
			call.Demands = append(call.Demands, limiter.Demand{Policy: name, Identifier: "somebody"})
		}
		_, err := e.Do(t.Context(), &call)
		return err
	}
	other := limiter.Demand{Policy: "log", Identifier: "another"}
	for range 100 {
		if err := take("bucket"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("by a damaged cell: %v", err)
		}
		if _, err := e.Take(t.Context(), other); err != nil {
			t.Fatalf("after it: %v", err)
		}
		if err := take("log", "bucket"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("together with a damaged cell: %v", err)
		}
		if _, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
			other, {Policy: "log", Identifier: "a third"},
		}}); err != nil {
			t.Fatalf("after that: %v", err)
		}
	}
}

// TestCostsAboveAnyLimit are refused whichever limit it is, and not those above none: a limit
// of 0 denies all costs alike.
func TestCostsAboveAnyLimit(t *testing.T) {
	limit := func(name string, n int64) policy.Limit {
		return policy.Limit{Name: name, Algorithm: "fixed-window", Limit: n, Window: time.Minute}
	}
	for name, limits := range map[string][]policy.Limit{
		"the first":           {limit("a", 5), limit("b", 10)},
		"the last":            {limit("a", 10), limit("b", 5)},
		"the one in between":  {limit("a", 10), limit("b", 5), limit("c", 7)},
		"beside one of zero":  {limit("a", 0), limit("b", 5)},
		"before one of zero":  {limit("a", 5), limit("b", 0)},
		"all are of the same": {limit("a", 5), limit("b", 5)},
	} {
		e := limiter.New(embedded.New(nil), nil)
		if err := e.SetPolicies([]policy.Policy{{Name: "p", Limits: limits}}); err != nil {
			t.Fatal(err)
		}
		for cost, want := range map[int64]error{5: nil, 6: limiter.ErrCostTooLarge} {
			d := limiter.Demand{Policy: "p", Identifier: "x", Cost: cost}
			if _, err := e.Check(t.Context(), d); !errors.Is(err, want) {
				t.Errorf("%s: a cost of %d: %v, want %v", name, cost, err, want)
			}
			if _, err := e.Record(t.Context(), d); err != nil {
				t.Errorf("%s: a record of %d: %v", name, cost, err)
			}
		}
	}
}
