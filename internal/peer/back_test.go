package peer

import (
	"errors"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// TestBackTravels holds that the owner is told what a receipt says, and refuses what is none.
func TestBackTravels(t *testing.T) {
	want := count.Entry{
		ID: store.EventID{1, 2, 3}, At: 4, Cost: 5, Claimed: 6, Confirmed: true, Epoch: 7, Kept: 8, Repeats: true, Again: true,
	}
	sent := demand.Charge{Target: demand.Target{Key: keyOf(7)}, Op: owner.OpGiveBack, Back: &want}
	got, err := chargeOf(callOf(&sent))
	if err != nil || got.Op != owner.OpGiveBack || got.Key != sent.Key || got.Back == nil || *got.Back != want {
		t.Errorf("%+v, %v", got, err)
	}
	for name, spoil := range map[string]func(*peerpb.Call){
		"nothing":     func(c *peerpb.Call) { c.Back = nil },
		"a short id":  func(c *peerpb.Call) { c.Back.Id = []byte{1} },
		"no claim":    func(c *peerpb.Call) { c.Back.Claimed = -1 },
		"kept below":  func(c *peerpb.Call) { c.Back.Kept = -1 },
		"no units":    func(c *peerpb.Call) { c.Back.Cost = 0 },
		"units below": func(c *peerpb.Call) { c.Back.Cost = -1 },
	} {
		c := callOf(&sent)
		spoil(c)
		if _, err := chargeOf(c); !errors.Is(err, owner.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
