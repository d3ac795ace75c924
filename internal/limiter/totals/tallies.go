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

// Totals are the running totals that this process keeps in a store: for each key and
// window a row of its own, which nobody else writes. They stand in for counters that
// all instances add to, and cost a store less: a total that is stored again replaces
// itself, so whoever does not know what became of a write says the next total, and
// what is not admitted is taken back at once.
//
// A read that meets every acknowledged total of every row sees each writer's admitted
// units: what is in a total and not admitted only makes it larger, and a total is never
// lowered below what was admitted under it. That is all that counting after writing needs.
//
// What is forgotten here, or was counted by a process that is gone, stays in the store
// until it expires; the key's next unit begins a new row.
type Totals struct {
	store.Store

	ids    *store.EventIDs
	timing *clock.Timing

	mu         sync.Mutex
	young, old map[store.Key]*tally
}

// tally is what this process has counted for one key. A window that was forgotten and is
// counted in again, because a clock went back, gets another row.
type tally struct {
	ids *store.EventIDs

	mu     sync.Mutex
	stamp  int64
	ahead  *ahead         // nil: nothing is to be spent
	totals []store.Count  // of windows that are not over yet; each with its row
	first  [2]store.Count // where totals are while there are no more: this window's and the one's before
}

// maxTallies bounds each of the two generations of keys, of 300 bytes and more: 40 MiB.
// Beyond, the older one is forgotten, and its keys get new rows.
const maxTallies = 1 << 17

// New returns totals of a process whose ids are these, kept in store.
func New(store store.Store, ids *store.EventIDs, timing *clock.Timing) *Totals {
	return &Totals{Store: store, ids: ids, timing: timing}
}

// Write stores w, whose additions it makes totals of if w says so. After an error that
// wraps ErrNotStored the totals are as they were; after any other they are not, and the
// next one that is stored makes up for this one, whether it was stored or not.
func (t *Totals) Write(ctx context.Context, w *store.Write) error {
	if !w.Tally || len(w.Add) == 0 {
		return t.Store.Write(ctx, w)
	}
	put := t.totalled(w)
	err := t.Store.Write(ctx, &put)
	t.settle(w, err)
	return err
}

// WriteThenRead stores w as Write does, and then reads.
func (t *Totals) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (state store.State, wrote bool, err error) {
	if !w.Tally || len(w.Add) == 0 {
		return store.WriteThenRead(ctx, t.Store, w, q)
	}
	put := t.totalled(w)
	if state, wrote, err = store.WriteThenRead(ctx, t.Store, &put, q); !wrote {
		t.settle(w, err)
	}
	return state, wrote, err
}

// WriteEach stores each of w as Write does.
func (t *Totals) WriteEach(ctx context.Context, w []store.Write, wrote func(i int, err error)) {
	if !slices.ContainsFunc(w, func(w store.Write) bool { return w.Tally && len(w.Add) > 0 }) {
		store.WriteEach(ctx, t.Store, w, wrote)
		return
	}
	puts := slices.Clone(w)
	for i := range puts {
		if w[i].Tally && len(w[i].Add) > 0 {
			puts[i] = t.totalled(&w[i])
		}
	}
	store.WriteEach(ctx, t.Store, puts, func(i int, err error) {
		if w[i].Tally {
			t.settle(&w[i], err)
		}
		wrote(i, err)
	})
}

// totalled returns w with the new totals in the place of what is added to them.
func (t *Totals) totalled(w *store.Write) store.Write {
	put := *w
	put.Put, put.Add = t.of(w.Key).add(w.Add, t.timing), nil
	return put
}

// settle takes what w added out of the totals again if it surely was not stored.
func (t *Totals) settle(w *store.Write, err error) {
	if errors.Is(err, store.ErrNotStored) && len(w.Add) > 0 {
		t.of(w.Key).add(Negated(w.Add), t.timing)
	}
}

// known returns the tally of key; nil: there is none.
func (t *Totals) known(key store.Key) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine, ok := t.young[key]; ok {
		return mine
	}
	return t.old[key]
}

// of returns the tally of key, made if there is none.
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

// add adds counts to the totals and returns those that changed, as they are to be
// stored.
func (t *tally) add(counts []store.Count, o *clock.Timing) []store.Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(counts, o)
}

// addLocked is add while t is locked. It ends what is stored ahead.
func (t *tally) addLocked(counts []store.Count, o *clock.Timing) []store.Tally {
	t.ahead = nil
	now := o.Time()
	t.stamp = max(t.stamp+1, now.UnixMicro())
	if !o.IsSkewed() { // else what is not over may seem to be, and what is taken back of it would begin another row
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

// total returns the total that counts where c does, nil if there is none.
func (t *tally) total(c *store.Count) *store.Count {
	for i := range t.totals {
		if total := &t.totals[i]; total.Start == c.Start && total.Epoch == c.Epoch && total.Limit == c.Limit {
			return total
		}
	}
	return nil
}

// Lower takes counts out of key's totals, and returns what it takes to have them stored:
// the addition of nothing.
func (t *Totals) Lower(key store.Key, counts []store.Count) []store.Count {
	t.of(key).add(Negated(counts), t.timing)
	return store.Emptied(counts)
}

// TotalsOf returns key's totals for the windows of counts: this process knows them better
// than what it reads of them.
func (t *Totals) TotalsOf(key store.Key, counts []store.Count) []store.Count {
	of := t.of(key)
	of.mu.Lock()
	defer of.mu.Unlock()
	held := store.Emptied(counts)
	for i := range held {
		if total := of.total(&held[i]); total != nil {
			held[i] = *total
		}
	}
	return held
}

// AreAllOwn reports whether all sums of state are totals of this process, as it knows them
// itself. It says nothing of units that are being written or taken back.
func (t *Totals) AreAllOwn(key store.Key, state *store.State) bool {
	own := t.of(key)
	own.mu.Lock()
	defer own.mu.Unlock()
	return !slices.ContainsFunc(state.Counts, func(c store.Count) bool {
		total := own.total(&c)
		return total == nil || *total != c
	})
}

// tallyTTL returns how long total must live: as long as it matters by the slowest of all
// clocks, those of the store's own nodes among them. It is not counted from now on, which
// a clock that is off would make too short, but from the start of its window, or from an
// earlier now.
func tallyTTL(o *clock.Timing, total *store.Count, now store.Instant) time.Duration {
	lasts := total.Expires.Sub(min(total.Start, now))
	return o.Lasting(lasts + o.Slack())
}

// Negated returns counts with what takes them back.
func Negated(counts []store.Count) []store.Count {
	back := slices.Clone(counts)
	for i := range back {
		back[i].Units = -back[i].Units
	}
	return back
}
