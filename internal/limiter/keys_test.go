package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
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
		algorithm  string
		guarantee  policy.Guarantee
		serial     policy.Level
		level      policy.Level
		datacenter string
	}
	base := way{"fixed-window", policy.GuaranteeCounted, policy.LevelLocalSerial, policy.LevelLocalQuorum, "east"}
	keyOf := func(w way) store.Key {
		p := policyOf(w.algorithm, 3, time.Minute)
		p.Guarantee, p.Consistency = w.guarantee, policy.Consistency{Write: w.level, Read: w.level}
		store := newFakeStore()
		e := limiter.New(store, &limiter.Options{Serial: w.serial, Datacenter: w.datacenter})
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		mustTake(t, e)
		return store.reads[0].Key
	}
	bucket := way{"token-bucket", policy.GuaranteeCounted, policy.LevelLocalSerial, "", "east"}
	for name, c := range map[string]struct {
		a, b way
		same bool
	}{
		"another guarantee":                      {a: base, b: way{base.algorithm, policy.GuaranteeLocal, base.serial, base.level, "east"}},
		"a cell":                                 {a: base, b: bucket},
		"another data centre, of levels in each": {a: base, b: way{base.algorithm, base.guarantee, base.serial, base.level, "west"}},
		"another data centre, of serial in each": {a: bucket, b: way{bucket.algorithm, bucket.guarantee, bucket.serial, bucket.level, "west"}},
		"serial over all data centres":           {a: bucket, b: way{bucket.algorithm, bucket.guarantee, policy.LevelSerial, "", "east"}},
		"another data centre, of levels over all": {
			a:    way{base.algorithm, base.guarantee, base.serial, policy.LevelQuorum, "east"},
			b:    way{base.algorithm, base.guarantee, base.serial, policy.LevelQuorum, "west"},
			same: true,
		},
	} {
		if same := keyOf(c.a) == keyOf(c.b); same != c.same {
			t.Errorf("%s: the same key: %v", name, same)
		}
	}
}

// TestRowsOfGuaranteeSerial puts a log and a cell where earlier builds kept them under guarantee serial, for a limit that is
// reached there. Nobody reads them under the policy without that line: it counts anew, up to its limit once.
func TestRowsOfGuaranteeSerial(t *testing.T) {
	const limit = 3
	for _, algorithm := range []string{"sliding-log", "fixed-window", "token-bucket"} {
		bubble(t, algorithm, func(t *testing.T) {
			s, ids := newFakeStore(), store.NewEventIDs()
			space := keys.KeySpace{Policy: "p", Guarantee: "serial", SerialLevel: string(policy.LevelLocalSerial)}
			was := (&keys.Keyer{}).For(space).Of(somebody.Identifier)
			now := store.InstantOf(time.Now())
			w := store.Write{
				Key: was, Level: policy.LevelLocalQuorum, Logs: []store.LogWrite{{Span: store.SpanMonth, TTL: time.Hour, Keep: limit}},
				Cell: &store.CellWrite{Version: ids.Next(now), Value: []byte{1, 0}, TTL: time.Hour, Serial: policy.LevelLocalSerial},
			}
			for range limit {
				w.Events = append(w.Events, store.Event{ID: ids.Next(now), At: now, Cost: 1})
			}
			if err := s.Store.Write(t.Context(), &w); err != nil {
				t.Fatal(err)
			}
			e := newEngine(t, s, 0, policyOf(algorithm, limit, 24*time.Hour))
			if allowed := takes(t, e, 2*limit); allowed != limit {
				t.Errorf("%d of %d are allowed", allowed, limit)
			}
			for _, q := range s.reads {
				if q.Key == was {
					t.Errorf("the rows of an earlier build are read: %+v", q)
				}
			}
		})
	}
}
