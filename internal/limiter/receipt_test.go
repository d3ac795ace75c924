package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestReceiptsAreNoFlags has many receipts and reservations made: none begins with a dash, which
// one of 64 random texts would. They are as good as others.
func TestReceiptsAreNoFlags(t *testing.T) {
	e := limiter.New(embedded.New(nil), nil)
	limits := []policy.Limit{{Algorithm: "fixed-window", Limit: 1e6, Window: time.Hour}}
	if err := e.SetPolicies([]policy.Policy{{Name: "p", Limits: limits}}); err != nil {
		t.Fatal(err)
	}
	on := []limiter.Demand{{Policy: "p", Identifier: "a", Cost: 1}}
	for range 1000 {
		taken, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: on})
		if err != nil || taken.Receipt == "" || taken.Receipt[0] == '-' {
			t.Fatalf("receipt %q, %v", taken.Receipt, err)
		}
		if err := e.Refund(t.Context(), taken.Receipt); err != nil {
			t.Fatalf("refund of %q: %v", taken.Receipt, err)
		}
	}
	for range 300 {
		held, err := e.Do(t.Context(), &limiter.Call{Op: count.OpCheck, Demands: on, Reserve: time.Second})
		if err != nil || held.Reservation == "" || held.Reservation[0] == '-' {
			t.Fatalf("reservation %q, %v", held.Reservation, err)
		}
	}
}
