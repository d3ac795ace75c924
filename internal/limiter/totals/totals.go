package totals

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Totals are the running totals that this process keeps in a store: for each key and window a row of its own, which no
// other process writes. They replace counters, to which all instances add, and cost a store less. A total that is written
// replaces the one before, so a process need not know whether an earlier write was stored, and it takes back units that
// are not admitted at once.
//
// A read that sees every acknowledged total of every row sees each writer's admitted units: units without an admission
// only make a total larger, and a total never falls below the units admitted in it. Counting after writing needs no
// more than that.
//
// The rows of keys that Totals has dropped, and of processes that have ended, stay in the store until they expire; the
// key's next unit begins a new row.
type Totals struct {
	store.Store

	ids    *store.EventIDs
	timing *clock.Timing

	mu         sync.Mutex
	young, old map[store.Key]*tally
}

// tally has this process's totals of one key. A window that was dropped and is used again, because a clock was set
// back, gets another row.
type tally struct {
	ids *store.EventIDs

	mu     sync.Mutex
	stamp  int64
	ahead  *ahead         // nil: there are no units to spend
	totals []store.Count  // of windows that have not ended yet; each with its row
	first  [2]store.Count // the memory of totals while two suffice: those of this window and the one before
}

// maxTallies bounds each of the two generations of keys, of 300 bytes and more: 40 MiB. Beyond it, the older generation
// is dropped, and its keys get new rows.
const maxTallies = 1 << 17

// New returns the totals in store of a process that makes these ids.
func New(store store.Store, ids *store.EventIDs, timing *clock.Timing) *Totals {
	return &Totals{Store: store, ids: ids, timing: timing}
}

// Write stores w, with running totals in place of its additions if w.Tally. After an error that wraps ErrNotStored the
// totals are as before. After any other error they include w, and the next total replaces this one, whether it was stored
// or not.
func (t *Totals) Write(ctx context.Context, w *store.Write) error {
	if !w.Tally || len(w.Add) == 0 {
		return t.Store.Write(ctx, w)
	}
	put := t.totalled(w)
	err := t.Store.Write(ctx, &put)
	t.undoUnstored(w, err)
	return err
}

// WriteThenRead stores w as Write does, and then reads.
func (t *Totals) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (state store.State, wrote bool, err error) {
	if !w.Tally || len(w.Add) == 0 {
		return t.Store.WriteThenRead(ctx, w, q)
	}
	put := t.totalled(w)
	if state, wrote, err = t.Store.WriteThenRead(ctx, &put, q); !wrote {
		t.undoUnstored(w, err)
	}
	return state, wrote, err
}

// WriteEach stores each of w as Write does.
func (t *Totals) WriteEach(ctx context.Context, w []store.Write, wrote func(i int, err error)) {
	if !slices.ContainsFunc(w, func(w store.Write) bool { return w.Tally && len(w.Add) > 0 }) {
		t.Store.WriteEach(ctx, w, wrote)
		return
	}
	puts := slices.Clone(w)
	for i := range puts {
		if w[i].Tally && len(w[i].Add) > 0 {
			puts[i] = t.totalled(&w[i])
		}
	}
	t.Store.WriteEach(ctx, puts, func(i int, err error) {
		if w[i].Tally {
			t.undoUnstored(&w[i], err)
		}
		wrote(i, err)
	})
}

// totalled returns w with the new totals in place of its additions.
func (t *Totals) totalled(w *store.Write) store.Write {
	put := *w
	put.Put, put.Add = t.of(w.Key).add(w.Add, t.timing), nil
	return put
}

// undoUnstored subtracts w's units from the totals again if err says that w was certainly not stored.
func (t *Totals) undoUnstored(w *store.Write, err error) {
	if errors.Is(err, store.ErrNotStored) && len(w.Add) > 0 {
		t.of(w.Key).add(Negated(w.Add), t.timing)
	}
}

// known returns the tally of key, nil if it has none.
func (t *Totals) known(key store.Key) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine, ok := t.young[key]; ok {
		return mine
	}
	return t.old[key]
}

// of returns the tally of key. It makes one if there is none.
func (t *Totals) of(key store.Key) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine, ok := t.young[key]; ok {
		return mine
	}
	mine, ok := t.old[key]
	if !ok {
		mine = &tally{ids: t.ids}
		mine.totals = mine.first[:0]
	}
	if t.young == nil || len(t.young) >= maxTallies {
		t.old, t.young = t.young, make(map[store.Key]*tally)
	}
	t.young[key] = mine
	return mine
}

// add adds counts to the totals and returns the changed totals, to be stored.
func (t *tally) add(counts []store.Count, o *clock.Timing) []store.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(counts, o)
}

// addLocked is add for a caller that has locked t. It ends units stored ahead.
func (t *tally) addLocked(counts []store.Count, o *clock.Timing) []store.Tally {
	t.ahead = nil
	now := o.Time()
	t.stamp = max(t.stamp+1, now.UnixMicro())
	if !o.IsSkewed() { // by a wrong clock a window may seem to have ended, and a take-back from it would begin another row
		t.totals = slices.DeleteFunc(t.totals, func(c store.Count) bool { return c.Expires.Add(o.Slack()) < store.InstantOf(now) })
	}
	put := make([]store.Tally, len(counts))
	for i := range counts {
		total := t.total(&counts[i])
		if total == nil {
			t.totals = append(t.totals, counts[i])
			total = &t.totals[len(t.totals)-1]
			total.Row, total.Units = t.ids.Next(store.InstantOf(now)), 0
		}
		total.Units = store.AddSaturating(total.Units, counts[i].Units)
		put[i] = store.Tally{Count: *total, Stamp: t.stamp, TTL: tallyTTL(o, total, store.InstantOf(now))}
	}
	return put
}

// total returns the total with c's limit, window and epoch, nil if there is none.
func (t *tally) total(c *store.Count) *store.Count {
	for i := range t.totals {
		if total := &t.totals[i]; total.Start == c.Start && total.Epoch == c.Epoch && total.Limit == c.Limit {
			return total
		}
	}
	return nil
}

// Lower subtracts counts from key's totals, and returns the additions, of 0 units, by which a write stores them.
func (t *Totals) Lower(key store.Key, counts []store.Count) []store.Count {
	t.of(key).add(Negated(counts), t.timing)
	return store.Emptied(counts)
}

// TotalsOf returns key's totals for the windows of counts. They are more recent than those that a read returns.
func (t *Totals) TotalsOf(key store.Key, counts []store.Count) []store.Count {
	of := t.of(key)
	of.mu.Lock()
	defer of.mu.Unlock()
	own := store.Emptied(counts)
	for i := range own {
		if total := of.total(&own[i]); total != nil {
			own[i] = *total
		}
	}
	return own
}

// AreAllOwn reports whether all sums of state are this process's totals, with the values that it has in memory. It says
// nothing about units that are being written or taken back.
func (t *Totals) AreAllOwn(key store.Key, state *store.State) bool {
	own := t.of(key)
	own.mu.Lock()
	defer own.mu.Unlock()
	return !slices.ContainsFunc(state.Counts, func(c store.Count) bool {
		total := own.total(&c)
		return total == nil || *total != c
	})
}

// tallyTTL returns the time to live of total: until it no longer matters by the slowest of all clocks, those of the store's
// nodes included. The time begins at the start of the window, if that is earlier than now: if this instance's clock is
// fast, the time from now would be too short.
func tallyTTL(o *clock.Timing, total *store.Count, now store.Instant) time.Duration {
	lasts := total.Expires.Sub(min(total.Start, now))
	return o.Lasting(lasts + o.Slack())
}

// Negated returns a copy of counts with negative units.
func Negated(counts []store.Count) []store.Count {
	back := slices.Clone(counts)
	for i := range back {
		back[i].Units = -back[i].Units
	}
	return back
}
