package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Levels are those that the policy names, of writes and of reads.
func TestLevelsOfWritesAndReads(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			p := policyOf(algorithm, 3, time.Minute)
			p.Consistency = policy.Consistency{Write: policy.LevelThree, Read: policy.LevelTwo}
			mustTake(t, newEngine(t, store, 0, p))
			if level := store.last().Level; level != policy.LevelThree {
				t.Errorf("written at %s", level)
			}
			if level := store.reads[0].Level; level != policy.LevelTwo {
				t.Errorf("read at %s", level)
			}
		})
	}
}

// A policy that promises another way, or to others, counts under another key: conditional and
// plain writes never mix, and a data centre that promises for itself counts for itself.
func TestAnotherPromiseCountsUnderAnotherKey(t *testing.T) {
	type way struct {
		guarantee  policy.Guarantee
		serial     policy.Level
		level      policy.Level
		datacenter string
	}
	base := way{policy.GuaranteeCounted, policy.LevelLocalSerial, policy.LevelLocalQuorum, "east"}
	keyOf := func(w way) store.Key {
		p := policyOf("fixed-window", 3, time.Minute)
		p.Guarantee, p.Consistency = w.guarantee, policy.Consistency{Write: w.level, Read: w.level}
		store := newFakeStore()
		e := limiter.New(store, &limiter.Options{Serial: w.serial, Datacenter: w.datacenter})
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		mustTake(t, e)
		return store.reads[0].Key
	}
	serial := way{policy.GuaranteeSerial, policy.LevelLocalSerial, "", "east"}
	for name, c := range map[string]struct {
		a, b way
		same bool
	}{
		"another guarantee":                      {a: base, b: serial},
		"another data centre, of levels in each": {a: base, b: way{base.guarantee, base.serial, base.level, "west"}},
		"another data centre, of serial in each": {a: serial, b: way{serial.guarantee, serial.serial, serial.level, "west"}},
		"serial over all data centres":           {a: serial, b: way{serial.guarantee, policy.LevelSerial, serial.level, "east"}},
		"another data centre, of levels over all": {
			a:    way{base.guarantee, base.serial, policy.LevelQuorum, "east"},
			b:    way{base.guarantee, base.serial, policy.LevelQuorum, "west"},
			same: true,
		},
	} {
		if same := keyOf(c.a) == keyOf(c.b); same != c.same {
			t.Errorf("%s: the same key: %v", name, same)
		}
	}
}
