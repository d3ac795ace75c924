package limiter_test

import (
	"testing"
	"time"
)

// TestCellThatWasWrittenLastIsNotRead checks that the instance that wrote a bucket's cell last decides the next take by
// one conditional write alone.
func TestCellThatWasWrittenLastIsNotRead(t *testing.T) {
	bubble(t, "token-bucket", func(t *testing.T) {
		s := newFakeStore()
		a := newEngine(t, s, 0, policyOf("token-bucket", 4, time.Hour))
		mustTake(t, a)
		for left := int64(2); left >= 0; left-- {
			reads, writes := s.counts()
			if d := mustTake(t, a); !d.Allowed || d.Remaining != left {
				t.Errorf("%+v, want %d left", d.Verdict, left)
			}
			if r, w := s.counts(); r != reads || w != writes+1 {
				t.Errorf("%d reads and %d writes, want one write", r-reads, w-writes)
			}
		}
	})
}

// TestCellThatIsRememberedIsLookedUpBeforeItDenies holds that no call is denied by an earlier state of a cell: other
// instances may have given units back meanwhile.
func TestCellThatIsRememberedIsLookedUpBeforeItDenies(t *testing.T) {
	bubble(t, "token-bucket", func(t *testing.T) {
		s := newFakeStore()
		policy := policyOf("token-bucket", 1, time.Hour)
		a, b := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
		mustTake(t, a)
		mustReset(t, b)
		if d := mustTake(t, a); !d.Allowed {
			t.Errorf("%+v, want the take allowed: the key was reset", d.Verdict)
		}
	})
}

// TestCellThatSomebodyElseWroteIsRead checks that units of another instance count, and that an instance that was
// overtaken does not try in vain each time.
func TestCellThatSomebodyElseWroteIsRead(t *testing.T) {
	bubble(t, "token-bucket", func(t *testing.T) {
		s := newFakeStore()
		policy := policyOf("token-bucket", 10, time.Hour)
		a, b := newEngine(t, s, 0, policy), newEngine(t, s, 0, policy)
		for left := int64(9); left >= 0; left-- {
			e := a
			if left%2 == 0 {
				e = b
			}
			if d := mustTake(t, e); !d.Allowed || d.Remaining != left {
				t.Errorf("%+v, want %d left", d.Verdict, left)
			}
		}
		if _, writes := s.counts(); writes > 10+2 {
			t.Errorf("%d conditional writes for ten takes, want one in vain of each instance", writes)
		}
	})
}
