package memory

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func noPolicies(string) (*policy.Policy, bool) { return nil, false }

// TestFreePartsAreNobodys holds that small bodies and answers are admitted while large ones take all memory.
func TestFreePartsAreNobodys(t *testing.T) {
	p := NewPool(noPolicies)
	others := p.Share()
	if !others.Charge(FreeBody+most) || p.Left() != 0 {
		t.Fatalf("%d bytes are left", p.Left())
	}
	s := p.Share()
	if !s.Charge(FreeBody) || !s.Hold(FreeBody, FreeAnswer) || !s.Reserve(FreeBody, FreeAnswer) || !s.Empty() {
		t.Error("the free parts are refused")
	}
	if s.Charge(FreeBody+1) || s.Hold(FreeBody, FreeAnswer+1) || s.Reserve(FreeBody, FreeAnswer+1) {
		t.Error("there is room for a byte more")
	}
	if p.Taken() != most {
		t.Errorf("%d bytes are taken by what was refused", p.Taken()-most)
	}
	others.Release()
	if !s.Charge(FreeBody+1) || p.Taken() != 1 {
		t.Errorf("%d bytes are taken, want 1", p.Taken())
	}
}

// TestSharesGiveBack holds that shares release unused memory, once.
func TestSharesGiveBack(t *testing.T) {
	p := NewPool(noPolicies)
	s := p.Share()
	for range 2 {
		if !s.Charge(2*FreeBody) || p.Taken() != FreeBody {
			t.Errorf("a body that grew to so much takes %d bytes", p.Taken())
		}
	}
	if !s.Reserve(2*FreeBody, 10*FreeAnswer) || p.Taken() != FreeBody+9*FreeAnswer || s.Reserved() != 10*FreeAnswer {
		t.Errorf("with an answer, %d bytes are taken, %d reserved", p.Taken(), s.Reserved())
	}
	if !s.Settle(FreeBody, 2*FreeAnswer) || p.Taken() != FreeAnswer {
		t.Errorf("settled, %d bytes are taken", p.Taken())
	}
	s.Release()
	s.Release()
	if p.Taken() != 0 || !s.Empty() || s.Reserved() != 0 {
		t.Errorf("released, %d bytes are taken", p.Taken())
	}
}

// TestShareOfNoPool holds that a share without a pool has no bound.
func TestShareOfNoPool(t *testing.T) {
	var s Share
	if !s.Charge(2*most) || !s.Reserve(2*most, most) || s.Room(&limiter.Call{}, true) != 0 || !s.Empty() {
		t.Error("it is bounded")
	}
	s.Release()
}
