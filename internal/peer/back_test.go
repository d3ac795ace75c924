package peer

import (
	"errors"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/peer/peerpb"
)

// TestBackTravels holds that the owner is told what a receipt says, and refuses what is none.
func TestBackTravels(t *testing.T) {
	want := count.Entry{
		ID: store.EventID{1, 2, 3}, At: 4, Cost: 5, Claimed: 6, Confirmed: true, Epoch: 7, Kept: 8, Repeats: true, Again: true,
	}
	call := owner.Call{Policy: "p", Op: owner.OpGiveBack, Key: store.KeyFrom([store.KeySize]byte{7}), Back: &want}
	got, err := peerCallOf(callOf(&call))
	if err != nil || got.Op != owner.OpGiveBack || got.Key != call.Key || got.Back == nil || *got.Back != want {
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
		c := callOf(&call)
		spoil(c)
		if _, err := peerCallOf(c); !errors.Is(err, owner.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
