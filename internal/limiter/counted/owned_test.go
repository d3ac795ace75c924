package counted

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// holder is the term of a key's owner.
type holder struct {
	owner.Term
	began time.Time
}

func (holder) Owned() bool        { return true }
func (h holder) Began() time.Time { return h.began }

// TestEventsInMemoryAreBounded holds that an owner keeps a bounded number of events, whether they were read or added.
func TestEventsInMemoryAreBounded(t *testing.T) {
	o := owned{opts: demand.Settings{StoreTimeout: time.Second}.WithDefaults(), began: time.Now()}
	p := &demand.Plan{Promising: true, Regional: true}
	p.Base = p
	kept := func(sh *ownedShard) (events int) {
		for _, generation := range []map[store.Key]*keyState{sh.young, sh.old} {
			for _, k := range generation {
				events += k.length()
			}
		}
		return events
	}
	for i := range 500 {
		key := store.KeyFrom([store.KeySize]byte{9: byte(i), 10: byte(i >> 8)})
		state := store.State{Logs: []store.Log{{Events: make([]store.Event, 1000)}}}
		o.Keep(&demand.Target{Plan: p, Key: key}, holder{}, &state, 1, 0)
		if o.lookup(&demand.Target{Plan: p, Key: key}, holder{}) == nil {
			t.Fatalf("key %d is not remembered", i)
		}
	}
	for i := range o.shards {
		if n := kept(&o.shards[i]); n > 2*(maxEvents+1000) {
			t.Errorf("%d events are remembered", n)
		}
	}
	key := store.KeyFrom([store.KeySize]byte{1})
	o.Keep(&demand.Target{Plan: p, Key: key}, holder{}, &store.State{Logs: []store.Log{{}}}, 1, 0)
	o.grew(key, maxEvents+1)
	if sh := o.shard(key); len(sh.young) > 0 {
		t.Error("a generation that grew beyond its bound has not ended")
	}
}

// TestFullLogIsReadAgainAfterAnAbort holds that the state of a log that was read up to its limit, and may lack older
// events, is not used after some of its units were given back.
func TestFullLogIsReadAgainAfterAnAbort(t *testing.T) {
	p := &demand.Plan{Promising: true, Regional: true, RuleSet: count.RuleSet{Logs: []count.LogRules{{Limit: 3}}}}
	p.Base = p
	at := &demand.Target{Plan: p, Key: store.KeyFrom([store.KeySize]byte{1})}
	gone := []count.Entry{{ID: store.EventID{1}, Cost: 1}}
	for events, want := range map[int]bool{2: true, 3: false, 4: false} {
		o := owned{opts: demand.Settings{StoreTimeout: time.Second}.WithDefaults(), began: time.Now()}
		state := store.State{Logs: []store.Log{{}}}
		for i := range events {
			state.Logs[0].Events = append(state.Logs[0].Events, store.Event{ID: store.EventID{byte(i)}, At: 1, Cost: 1})
		}
		o.Keep(at, holder{}, &state, 1, 0)
		if got := o.takeOut(at, holder{}, gone) != nil; got != want {
			t.Errorf("of %d events, one is taken out of memory: %t, want %t", events, got, want)
		}
		k := o.lookup(at, holder{})
		if (k != nil) != want || k != nil && len(k.events) != events-1 {
			t.Errorf("of %d events, memory has %+v", events, k)
		}
	}
}

// TestKeyStateIsSmall holds that the state of a key fits into 80 bytes, a size class of Go's allocator.
func TestKeyStateIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(keyState{}); size > 80 {
		t.Errorf("keyState has %d bytes, which Go rounds up to 96 or more; want 80 at most", size)
	}
}

// TestKeyThatBecameSmallIsKept holds that a key that has just become small, and has no units yet, stays in memory.
func TestKeyThatBecameSmallIsKept(t *testing.T) {
	o := owned{opts: demand.Settings{StoreTimeout: time.Second}.WithDefaults(), began: time.Now()}
	p := &demand.Plan{Behind: true}
	p.Base = p
	at := &demand.Target{Plan: p, Key: store.KeyFrom([store.KeySize]byte{1})}
	sh, k, now := o.shard(at.Key), o.newKeyState(holder{}, p, new(store.State), 1, 0), store.InstantOf(time.Now())
	o.put(at.Key, k)
	o.keepSmall(at, k, now)
	if n := o.dropExpired(sh, 0, o.expiryHorizon(now)); n != 1 {
		t.Errorf("%d small keys are left, want the one that is about to count", n)
	}
	if n := o.dropExpired(sh, 0, o.expiryHorizon(now.Add(time.Minute))); n != 0 {
		t.Errorf("%d small keys are left a minute later, want none", n)
	}
}

// TestKeysShareTheirCommon holds that keys of one term and plan share a common, except those that were reset or must be
// read again.
func TestKeysShareTheirCommon(t *testing.T) {
	another := func() *demand.Plan {
		p := new(demand.Plan)
		p.Base = p
		return p
	}
	plans := []*demand.Plan{another(), another()}
	o := owned{began: time.Now()}
	read := func(plan *demand.Plan, reset store.Instant, until time.Duration) *keyState {
		return o.newKeyState(holder{}, plan, &store.State{Reset: reset}, 1, until)
	}
	first := read(plans[0], 0, 0)
	for name, c := range map[string]struct {
		other  *keyState
		shared bool
	}{
		"of the same plan": {read(plans[0], 0, 0), true},
		"of another":       {read(plans[1], 0, 0), false},
		"that was reset":   {read(plans[0], 1, 0), false},
		"to be read again": {read(plans[0], 0, 1), false},
		"that came much later": {func() *keyState {
			for range maxCommons {
				read(another(), 0, 0)
			}
			return read(plans[0], 0, 0)
		}(), false},
	} {
		if shared := c.other.common == first.common; shared != c.shared {
			t.Errorf("a key %s: shared %t, want %t", name, shared, c.shared)
		}
	}
}

// TestProvisionalCountersAreReadAgain holds that a new owner soon reads counters again, because other instances may still
// subtract units that they added before it owned the key.
func TestProvisionalCountersAreReadAgain(t *testing.T) {
	for name, c := range map[string]struct {
		counters bool
		owns     time.Duration // for so long, when the key is read
		again    bool
	}{
		"counters, soon after it owns them": {true, 0, true},
		"counters, later":                   {true, time.Minute, false},
		"a log":                             {false, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := owned{opts: demand.Settings{StoreTimeout: time.Second}.WithDefaults(), began: time.Now()}
			term := holder{began: time.Now()}
			p := &demand.Plan{Promising: true, Regional: true, RuleSet: count.RuleSet{Counters: c.counters}}
			p.Base = p
			at := &demand.Target{Plan: p, Key: store.KeyFrom([store.KeySize]byte{1})}
			time.Sleep(c.owns)
			o.Keep(at, term, &store.State{}, 1, 0)
			if o.lookup(at, term) == nil {
				t.Fatalf("%s: the key is not in memory", name)
			}
			time.Sleep(time.Second)
			if again := o.lookup(at, term) == nil; again != c.again {
				t.Errorf("%s: read again %t, want %t", name, again, c.again)
			}
		})
	}
}

// TestEndedTermsAreLetGo holds that Flush drops the commons, so that ended terms can be garbage collected.
func TestEndedTermsAreLetGo(t *testing.T) {
	s := New(nil, store.NewEventIDs(), demand.Settings{}.WithDefaults())
	commons := &s.counted.owned.commons
	commons.get(holder{}, &demand.Plan{})
	if s.Flush(t.Context()); len(commons.byID) > 0 {
		t.Errorf("%d commons are left", len(commons.byID))
	}
}
