package totals

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// ahead is what the stored totals of a key have beyond what is counted in them. Whoever else reads them takes it for used, so
// it may be counted at any time, and nothing be written.
type ahead struct {
	by    *store.Write // which added to the totals
	units int64        // that are left, in each of them
	acked bool         // by the store; else nobody knows whether it is there
}

// aheadPart is which part of what is counted in a window is stored ahead at most: a key that is asked for rarely has no use for it.
const aheadPart = 4

// WriteAhead stores w, which only adds to running totals, as Write does, and most units more at most, for Spend. It keeps w.
func (t *Totals) WriteAhead(ctx context.Context, w *store.Write, most int64) error {
	mine := t.of(w.Key)
	put := *w
	put.Put, put.Add = mine.addAhead(w, most, t.timing), nil
	err := t.Store.Write(ctx, &put)
	t.settle(w, err)
	if err == nil {
		mine.gain(put.Put[0].Stamp)
	}
	return err
}

// addAhead adds what w does, and most units more at most to what is to be stored.
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

// gain has what was stored ahead by that stamp spent from now on, unless another total was sent since.
func (t *tally) gain(stamp int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ahead != nil && t.stamp == stamp {
		t.ahead.acked = true
	}
}

// Spend adds counts, which are of equal units, to key's totals, if as many are stored ahead. It reports whether it did: else
// nothing is changed.
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

// SettleKey stores what is counted for key and no more, if more is stored.
func (t *Totals) SettleKey(ctx context.Context, key store.Key) error {
	if mine := t.known(key); mine != nil {
		if w := mine.settled(t.timing.Instant()); w != nil {
			return t.Write(ctx, w)
		}
	}
	return nil
}

// Settle does that for all keys. What fails counts as used until its window ends.
func (t *Totals) Settle(ctx context.Context) {
	now := t.timing.Instant()
	var writes []store.Write
	t.mu.Lock()
	for _, generation := range []map[store.Key]*tally{t.young, t.old} {
		for _, mine := range generation {
			if w := mine.settled(now); w != nil {
				writes = append(writes, *w)
			}
		}
	}
	t.mu.Unlock()
	if len(writes) > 0 {
		t.WriteEach(ctx, writes, func(int, error) {})
	}
}

// settled returns what stores what is counted and no more; nil: no more is stored.
func (t *tally) settled(now store.Instant) *store.Write {
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
