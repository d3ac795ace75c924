package totals

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// ahead has the units by which the stored totals of a key exceed the counted units. Other instances read them as used, so
// this process may count them at any time without a write.
type ahead struct {
	by    *store.Write // the write that stored them
	units int64        // those that are not spent yet, in each total
	acked bool         // the store has acknowledged them; until then they may not be stored
}

// aheadPart is the divisor of a window's counted units that gives the most units to store ahead: a key with few calls has
// no use for more.
const aheadPart = 4

// WriteAhead stores w, which only adds to running totals, as Write does, and also up to most units for Spend. It retains w.
func (t *Totals) WriteAhead(ctx context.Context, w *store.Write, most int64) error {
	mine := t.of(w.Key)
	put := *w
	put.Put, put.Add = mine.addAhead(w, most, t.timing), nil
	err := t.Store.Write(ctx, &put)
	t.undoUnstored(w, err)
	if err == nil {
		mine.gain(put.Put[0].Stamp)
	}
	return err
}

// addAhead adds w's units to the totals. It returns the totals to store, each with the same number of further units, at
// most most.
func (t *tally) addAhead(w *store.Write, most int64, o *clock.Timing) []store.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	put := t.addLocked(w.Add, o)
	for i := range put {
		most = min(most, put[i].Units/aheadPart)
	}
	if most <= 0 {
		return put
	}
	for i := range put {
		put[i].Units += most
	}
	t.ahead = &ahead{by: w, units: most}
	return put
}

// gain allows Spend to use the units that were stored ahead with this stamp, unless another total was sent since.
func (t *tally) gain(stamp int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ahead != nil && t.stamp == stamp {
		t.ahead.acked = true
	}
}

// Spend adds counts, which all have the same units, to key's totals if as many units are stored ahead, and reports whether
// it did. If it did not, nothing has changed.
func (t *Totals) Spend(key store.Key, counts []store.Count) bool {
	mine := t.known(key)
	if mine == nil {
		return false
	}
	mine.mu.Lock()
	defer mine.mu.Unlock()
	a := mine.ahead
	if a == nil || !a.acked || len(a.by.Add) != len(counts) || a.units < counts[0].Units {
		return false
	}
	for i := range counts {
		if c := &counts[i]; !a.by.Add[i].Same(*c) || mine.total(c) == nil {
			return false
		}
	}
	for i := range counts {
		mine.total(&counts[i]).Units += counts[i].Units
	}
	a.units -= counts[0].Units
	return true
}

// DropAheadOf stores key's totals without the units ahead, if the key has any.
func (t *Totals) DropAheadOf(ctx context.Context, key store.Key) error {
	if mine := t.known(key); mine != nil {
		if w := mine.withoutAhead(t.timing.Instant()); w != nil {
			return t.Write(ctx, w)
		}
	}
	return nil
}

// DropAhead is DropAheadOf for all keys. After a failure the units ahead count as used until their window ends.
func (t *Totals) DropAhead(ctx context.Context) {
	now := t.timing.Instant()
	var writes []store.Write
	t.mu.Lock()
	for _, generation := range []map[store.Key]*tally{t.young, t.old} {
		for _, mine := range generation {
			if w := mine.withoutAhead(now); w != nil {
				writes = append(writes, *w)
			}
		}
	}
	t.mu.Unlock()
	if len(writes) > 0 {
		t.WriteEach(ctx, writes, func(int, error) {})
	}
}

// withoutAhead returns the write that stores the totals without the units ahead, nil if the key has none.
func (t *tally) withoutAhead(now store.Instant) *store.Write {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.ahead
	if a == nil || a.units == 0 || a.by.Add[0].Expires <= now {
		return nil
	}
	w := *a.by
	w.Add = store.Emptied(w.Add)
	return &w
}
