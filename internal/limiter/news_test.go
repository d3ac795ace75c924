package limiter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// fakeFeed is a feed that fails when a test wants it to. It returns what is dated since
// the instant asked for, the latest first.
type fakeFeed struct {
	store.Feed

	mu        sync.Mutex
	down      bool
	deaf      bool // nothing can be published
	cut       bool // nothing beyond a data centre can be asked or told
	tries     int  // to publish
	published []store.Change
	since     []store.Instant
	asked     []store.ChangeQuery
	failing   func(*store.ChangeQuery) bool // nil: none fails
}

func newFakeFeed() *fakeFeed { return &fakeFeed{Feed: embedded.New(nil)} }

var errFeedDown = errors.Join(store.ErrUnavailable, errors.New("the feed is down"))

func (f *fakeFeed) Publish(ctx context.Context, c *store.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries++
	if f.down || f.deaf || f.cut && c.Level != "" {
		return errFeedDown
	}
	f.published = append(f.published, *c)
	return f.Feed.Publish(ctx, c)
}

func (f *fakeFeed) Changes(ctx context.Context, q *store.ChangeQuery) ([]store.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return nil, errFeedDown
	}
	if f.cut && q.Level != "" || f.failing != nil && f.failing(q) {
		return nil, errFeedDown
	}
	f.asked = append(f.asked, *q)
	f.since = append(f.since, q.Since)
	changes, err := f.Feed.Changes(ctx, q)
	changes = slices.DeleteFunc(changes, func(c store.Change) bool {
		at := c.ID.Instant()
		return at < q.Since || q.Until != 0 && at >= q.Until
	})
	slices.Reverse(changes)
	return changes, err
}

func (f *fakeFeed) Overrides(ctx context.Context, level policy.Level) ([]store.Change, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down || f.cut && level != "" {
		return nil, errFeedDown
	}
	return f.Feed.Overrides(ctx, level)
}

func (f *fakeFeed) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func TestResetLiftsABlockEverywhere(t *testing.T) {
	bubble(t, "reset", func(t *testing.T) {
		store, feed := newFakeStore(), newFakeFeed()
		a, b := instance(t, store, feed, blocking()), instance(t, store, feed, blocking())
		for range 2 { // the second block in a row
			time.Sleep(provoke(t, b).RetryAfter)
		}
		time.Sleep(30 * time.Second)
		provoke(t, a)
		time.Sleep(time.Second)
		mustReset(t, a)
		if d := mustTake(t, a); !d.Allowed {
			t.Errorf("where it was reset: %+v", d.Verdict)
		}
		mustReset(t, a)
		time.Sleep(time.Second)
		if d := mustTake(t, b); !d.Allowed || d.Blocked {
			t.Errorf("elsewhere, a second later: %+v", d.Verdict)
		}
		if d := provoke(t, b); d.RetryAfter != 10*time.Minute {
			t.Errorf("the next block lasts %v: strikes outlived the reset", d.RetryAfter)
		}
		mustReset(t, b)
		time.Sleep(time.Second)
		if c := instance(t, store, feed, blocking()); mustCheck(t, c).Blocked || c.BlocksKnown() > 0 {
			t.Errorf("an instance started anew knows %d blocks", c.BlocksKnown())
		}
	})
}

// TestResetReachesOtherInstancesOwnCounts has them decide a second later.
func TestResetReachesOtherInstancesOwnCounts(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			s, feed := newFakeStore(), newFakeFeed()
			p := policyOf(algorithm, 2, 24*time.Hour)
			p.OnStoreError = policy.OnStoreErrorLocal
			a, b := instance(t, s, feed, p), instance(t, s, feed, p)
			for range 2 {
				mustTake(t, b)
			}
			time.Sleep(time.Second)
			mustReset(t, a)
			time.Sleep(time.Second)
			s.set(func() {
				s.onWrite = func(*store.Write) error { return store.ErrUnavailable }
				s.afterRead = func(*store.State) error { return store.ErrUnavailable }
			})
			for i, want := range []bool{true, true, false} {
				if d := mustTake(t, b); d.Allowed != want || !d.Degraded {
					t.Errorf("take %d by own counts: allowed %v, degraded %v, want %v", i+1, d.Allowed, d.Degraded, want)
				}
			}
		})
	}
}

// TestResetIsHeardOnce counts how often an instance looks into its own store, which only
// news of a reset has it do here.
func TestResetIsHeardOnce(t *testing.T) {
	bubble(t, "reset", func(t *testing.T) {
		store, feed, own := newFakeStore(), newFakeFeed(), &readCounter{Store: embedded.New(nil)}
		a := instance(t, store, feed, blocking())
		instanceWith(t, store, &limiter.Options{Feed: feed, Local: own}, blocking())
		mustReset(t, a)
		time.Sleep(time.Minute)
		if n := own.reads.Load(); n != 1 {
			t.Errorf("acted %d times on one reset", n)
		}
	})
}

type readCounter struct {
	*embedded.Store
	reads atomic.Int64
}

func (r *readCounter) Read(ctx context.Context, q *store.Query) (store.State, error) {
	r.reads.Add(1)
	return r.Store.Read(ctx, q)
}

// TestHintsAreDropped has an instance that reads a key before it writes, because it was
// over its limit, write at once after news of a reset or a refund.
func TestHintsAreDropped(t *testing.T) {
	for _, by := range []string{"reset", "refund"} {
		bubble(t, by, func(t *testing.T) {
			store, feed := newFakeStore(), newFakeFeed()
			policy := policyOf("sliding-log", 1, time.Hour)
			a, b := instance(t, store, feed, policy), instance(t, store, feed, policy)
			answer, err := a.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
			if err != nil {
				t.Fatal(err)
			}
			provoke(t, b)
			if by == "reset" {
				mustReset(t, a)
			} else if err := a.Refund(t.Context(), answer.Receipt); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			reads, _ := store.counts()
			if d := mustTake(t, b); !d.Allowed {
				t.Errorf("%+v", d.Verdict)
			}
			if now, _ := store.counts(); now != reads+1 {
				t.Errorf("%d reads, want one, after the write", now-reads)
			}
		})
	}
}

func TestBlockReachesOthersOnceTheFeedIsBack(t *testing.T) {
	for name, fail := range map[string]func(*fakeFeed, bool){
		"down":              func(f *fakeFeed, is bool) { f.down = is },
		"unable to publish": func(f *fakeFeed, is bool) { f.deaf = is },
	} {
		bubble(t, name, func(t *testing.T) {
			store, feed := newFakeStore(), newFakeFeed()
			policy := blocking()
			policy.BlockFor, policy.BlockMax = time.Hour, 2*time.Hour
			a, b := instance(t, store, feed, policy), instance(t, store, feed, policy)
			feed.set(func() { fail(feed, true) })
			provoke(t, a)
			time.Sleep(20 * time.Minute)
			if d := mustTake(t, a); !d.Blocked || d.RetryAfter != 40*time.Minute {
				t.Errorf("where it was made: %+v", d)
			}
			if d := mustCheck(t, b); d.Blocked {
				t.Error("heard of though the feed is down")
			}
			feed.set(func() {
				if feed.tries > 60 || feed.down && feed.tries > 1 {
					t.Errorf("%d tries in 20 minutes", feed.tries)
				}
				fail(feed, false)
			})
			time.Sleep(31 * time.Second)
			for i, e := range []*limiter.Engine{b, instance(t, store, feed, policy)} {
				if d := mustTake(t, e); !d.Blocked || d.RetryAfter != 40*time.Minute-31*time.Second {
					t.Errorf("instance %d, once the feed is back: %+v", i, d)
				}
			}
			feed.set(func() {
				for _, c := range feed.published {
					if end := c.ID.Instant().Add(c.TTL); end < c.Until.Add(2*time.Hour) || end > c.Until.Add(2*time.Hour+2*time.Second) {
						t.Errorf("the news lives until %v after the block", end.Sub(c.Until))
					}
				}
			})
		})
	}
}

func TestResetThatCannotBeTold(t *testing.T) {
	bubble(t, "feed down", func(t *testing.T) {
		s, feed := newFakeStore(), newFakeFeed()
		a, b := instance(t, s, feed, blocking()), instance(t, s, feed, blocking())
		provoke(t, a)
		time.Sleep(time.Second)
		feed.set(func() { feed.down = true })
		var failed *count.StoreError
		err := a.Reset(t.Context(), "p", somebody.Identifier)
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown || !errors.Is(err, store.ErrUnavailable) ||
			!strings.Contains(err.Error(), "other instances may block") {
			t.Errorf("%v", err)
		}
		if d := mustTake(t, a); !d.Allowed {
			t.Errorf("where it was reset: %+v", d)
		}
		mustReset := func() {
			t.Helper()
			if !mustTake(t, b).Blocked {
				t.Error("told though the feed is down")
			}
		}
		mustReset()
		feed.set(func() { feed.down = false })
		time.Sleep(time.Second)
		if mustCheck(t, b).Blocked {
			t.Error("not told once the feed was back")
		}
	})
}

func TestBlockThatWasLiftedIsNotTold(t *testing.T) {
	bubble(t, "feed down", func(t *testing.T) {
		s, feed := newFakeStore(), newFakeFeed()
		a := instance(t, s, feed, blocking())
		feed.set(func() { feed.down = true })
		provoke(t, a)
		time.Sleep(time.Second)
		if err := a.Reset(t.Context(), "p", somebody.Identifier); err == nil {
			t.Error("told though the feed is down")
		}
		feed.set(func() { feed.down = false })
		time.Sleep(time.Minute)
		feed.set(func() {
			if len(feed.published) != 1 || feed.published[0].Kind != store.ChangeReset {
				t.Errorf("told %+v, want the reset alone", feed.published)
			}
		})
	})
}

// TestBlockMadeAfterAReset holds though the news of the reset come later.
func TestBlockMadeAfterAReset(t *testing.T) {
	bubble(t, "block", func(t *testing.T) {
		store, feed := newFakeStore(), newFakeFeed()
		a, b := instance(t, store, feed, blocking()), instance(t, store, feed, blocking())
		time.Sleep(limiter.PollEvery + time.Millisecond)
		mustReset(t, a)
		time.Sleep(2*tolerance + 10*time.Millisecond)
		provoke(t, b)
		time.Sleep(time.Second)
		for i, e := range []*limiter.Engine{a, b, instance(t, store, feed, blocking())} {
			if !mustCheck(t, e).Blocked {
				t.Errorf("instance %d: lifted by a reset from before", i)
			}
		}
	})
}

// TestResetBySlowClock forgets what an instance with a fast clock dated before it.
func TestResetBySlowClock(t *testing.T) {
	bubble(t, "clocks", func(t *testing.T) {
		s, feed := newFakeStore(), newFakeFeed()
		p := blocking()
		p.OnStoreError = policy.OnStoreErrorLocal
		by := func(offset time.Duration) *limiter.Engine {
			now := func() time.Time { return time.Now().Add(offset) }
			o := &limiter.Options{Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil), Now: now}
			return instanceWith(t, s, o, p)
		}
		slow, fast := by(-tolerance), by(tolerance)
		provoke(t, fast)
		time.Sleep(time.Millisecond)
		mustReset(t, slow)
		time.Sleep(time.Second)
		s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
		if d := mustTake(t, fast); !d.Allowed || !d.Degraded {
			t.Errorf("blocked %v, %+v, want own counts and block forgotten", d.Blocked, d.Verdict)
		}
	})
}

// TestResetOutlastsABlock starts an instance long after a block was lifted, and long before its
// news end: the news of the reset must live as long, whichever instance made it.
func TestResetOutlastsABlock(t *testing.T) {
	for _, c := range []struct {
		name  string
		by    int
		after time.Duration
	}{
		{"before it is heard of", 0, 0},
		{"by who heard of it", 0, time.Second},
		{"by who made it", 1, time.Second},
	} {
		bubble(t, c.name, func(t *testing.T) {
			store, feed := newFakeStore(), newFakeFeed()
			policy := blocking()
			policy.BlockFor, policy.BlockMax = 24*time.Hour, 48*time.Hour
			two := []*limiter.Engine{instance(t, store, feed, policy), instance(t, store, feed, policy)}
			time.Sleep(10 * time.Millisecond)
			provoke(t, two[1])
			synctest.Wait()
			time.Sleep(c.after)
			mustReset(t, two[c.by])
			for _, wait := range []time.Duration{time.Second, time.Hour + time.Minute} { // other news live for an hour
				time.Sleep(wait)
				for i, e := range append(two, instance(t, store, feed, policy)) {
					if mustCheck(t, e).Blocked {
						t.Errorf("instance %d is blocked %v after the reset", i, wait)
					}
				}
			}
		})
	}
}

// TestNewsWhileTheHashKeyChanges has instances that write under the old key and under
// the new one, and read both.
func TestNewsWhileTheHashKeyChanges(t *testing.T) {
	bubble(t, "rotation", func(t *testing.T) {
		older := keys.Keyer{Secret: &keys.HashKey{ID: "1", Secret: []byte("0123456789abcdef")}}
		newer := keys.Keyer{Secret: &keys.HashKey{ID: "2", Secret: []byte("fedcba9876543210")}}
		store, feed := newFakeStore(), newFakeFeed()
		by := func(first, second keys.Keyer) *limiter.Engine {
			return instanceWith(t, store, &limiter.Options{Feed: feed, Keyer: first, AlsoRead: []keys.Keyer{second}}, blocking())
		}
		two := []*limiter.Engine{by(older, newer), by(newer, older)}
		for i, e := range two {
			other := two[1-i]
			provoke(t, e)
			time.Sleep(time.Second)
			if !mustCheck(t, other).Blocked {
				t.Errorf("a block under key %d is not seen under the other", i+1)
			}
			mustReset(t, other)
			time.Sleep(time.Second)
			if mustCheck(t, e).Blocked {
				t.Errorf("a reset under key %d is not seen under the other", 2-i)
			}
		}
	})
}

// TestLastNewsOfAnInstance publishes when an instance ends what could not be published
// before.
func TestLastNewsOfAnInstance(t *testing.T) {
	bubble(t, "end", func(t *testing.T) {
		store, feed := newFakeStore(), newFakeFeed()
		e := limiter.New(store, &limiter.Options{Feed: feed})
		if err := e.SetPolicies([]policy.Policy{blocking()}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = e.Run(ctx) }()
		feed.set(func() { feed.down = true })
		provoke(t, e)
		time.Sleep(time.Second)
		feed.set(func() { feed.down = false })
		cancel()
		<-done
		if !mustCheck(t, instance(t, store, feed, blocking())).Blocked {
			t.Error("the block ended with its instance")
		}
	})
}

func TestHowFarPollsReadBack(t *testing.T) {
	bubble(t, "polls", func(t *testing.T) {
		feed := newFakeFeed()
		started := store.InstantOf(time.Now())
		var skewed atomic.Bool
		instanceWith(t, newFakeStore(), &limiter.Options{Feed: feed, StoreTimeout: timeout, ClockTolerance: tolerance,
			Skewed: skewed.Load}, blocking())
		// back returns how far the i-th poll read back from an instant, the last one for -1.
		back := func(i int, from store.Instant) time.Duration {
			feed.mu.Lock()
			defer feed.mu.Unlock()
			if i < 0 {
				i = len(feed.since) - 1
			}
			return from.Sub(feed.since[i])
		}
		polls := func() int {
			feed.mu.Lock()
			defer feed.mu.Unlock()
			return len(feed.since)
		}
		if d := back(0, started); d < policy.MaxWindow {
			t.Errorf("the first poll reads back %v: a block may last %v", d, policy.MaxWindow)
		}
		time.Sleep(time.Minute)
		if d := back(-1, store.InstantOf(time.Now())); d < 2*timeout+2*tolerance || d > 10*time.Second {
			t.Errorf("a poll reads back %v", d)
		}
		feed.set(func() { feed.down = true })
		next := polls()
		time.Sleep(time.Hour)
		feed.set(func() { feed.down = false })
		time.Sleep(time.Second)
		if d := back(next, store.InstantOf(time.Now())); d < time.Hour {
			t.Errorf("after an hour without answers, a poll reads back %v", d)
		}
		skewed.Store(true)
		time.Sleep(time.Hour)
		if d := back(-1, store.InstantOf(time.Now())); d < time.Hour {
			t.Errorf("after an hour by a wrong clock, a poll reads back %v", d)
		}
	})
}

func TestChangesOfALaterVersionArePassedOver(t *testing.T) {
	bubble(t, "later", func(t *testing.T) {
		s, feed := newFakeStore(), newFakeFeed()
		e := instance(t, s, feed, blocking())
		c := store.Change{ID: store.NewEventIDs().Next(store.InstantOf(time.Now())), Kind: "of a later version", TTL: time.Hour}
		if err := feed.Publish(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if mustCheck(t, e).Blocked || e.BlocksKnown() > 0 {
			t.Error("taken for something else")
		}
	})
}

// An instance that starts goes on where it was when a part of all news could not be read.
func TestNewsAreCaughtUpWithInParts(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s, feed := newFakeStore(), newFakeFeed()
		a := instance(t, s, feed, blocking())
		tries := 0
		feed.set(func() {
			feed.asked = nil
			feed.failing = func(q *store.ChangeQuery) bool { // the middle of it is out of reach for a while
				middle := store.InstantOf(time.Now().Add(-5 * 24 * time.Hour))
				if q.Since > middle || q.Until <= middle {
					return false
				}
				tries++
				return tries < 10
			}
		})
		b := instance(t, s, feed, blocking())
		late := limiter.Demand{Policy: somebody.Policy, Identifier: "late"}
		for range 5 {
			_, _ = a.Take(t.Context(), late)
		}
		time.Sleep(time.Second)
		d, err := b.Check(t.Context(), late)
		feed.set(func() {
			if err != nil || !d.Blocked || tries == 0 || tries >= 10 {
				t.Errorf("what is new is not heard while what is old can't be: blocked %v, %v, %d tries", d.Blocked, err, tries)
			}
		})
		time.Sleep(time.Minute)
		feed.set(func() {
			seen := make(map[store.Instant]int)
			for _, q := range feed.asked {
				if time.Since(q.Since.Time()) > time.Hour {
					seen[q.Since]++
				}
			}
			if len(seen) < 20 || tries != 10 {
				t.Errorf("%d parts, %d tries", len(seen), tries)
			}
			for since, n := range seen {
				if n > 1 {
					t.Errorf("what is from %v on was read %d times", since.Time(), n)
				}
			}
		})
	})
}

// News reach as far as promises do: over the cluster where one policy's does, though the
// feed's own levels count in a data centre.
func TestHowFarNewsReach(t *testing.T) {
	over := policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}
	for name, test := range map[string]struct {
		options limiter.Options
		change  func(*policy.Policy)
		want    policy.Level
	}{
		"within":           {change: func(*policy.Policy) {}},
		"over all":         {change: func(p *policy.Policy) { p.Consistency = over }, want: policy.LevelQuorum},
		"as the feed does": {options: limiter.Options{Consistency: over}, change: func(*policy.Policy) {}},
		"buckets over all": {
			options: limiter.Options{Serial: policy.LevelSerial},
			change:  func(p *policy.Policy) { p.Limits[0].Algorithm = "token-bucket" }, want: policy.LevelQuorum,
		},
	} {
		bubble(t, name, func(t *testing.T) {
			feed, p := newFakeFeed(), policyOf("sliding-log", 5, time.Hour)
			test.change(&p)
			test.options.Feed = feed
			e := instanceWith(t, newFakeStore(), &test.options, policyOf("sliding-log", 5, time.Hour))
			named := p
			named.Name = "another"
			if err := e.SetPolicies([]policy.Policy{policyOf("sliding-log", 5, time.Hour), named}); err != nil {
				t.Fatal(err)
			}
			mustReset(t, e)
			time.Sleep(time.Minute)
			feed.set(func() {
				if len(feed.published) != 1 || feed.published[0].Level != test.want || feed.asked[len(feed.asked)-1].Level != test.want {
					t.Errorf("published %+v, asked %+v, want level %q", feed.published, feed.asked[len(feed.asked)-1], test.want)
				}
			})
		})
	}
}

// News go on within a data centre that is cut off from the others, and reach them later.
func TestNewsWithinReach(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s, feed, p := newFakeStore(), newFakeFeed(), blocking()
		over := policyOf("sliding-log", 5, time.Hour)
		over.Name, over.Consistency = "over-all", policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}
		a, b := instance(t, s, feed, p, over), instance(t, s, feed, p, over)
		feed.set(func() { feed.cut = true })
		provoke(t, a)
		time.Sleep(time.Second)
		if !mustCheck(t, b).Blocked {
			t.Error("a block is not heard of within the data centre")
		}
		feed.set(func() {
			if slices.ContainsFunc(feed.published, func(c store.Change) bool { return c.Level != "" }) {
				t.Errorf("%+v", feed.published)
			}
			feed.cut = false
		})
		time.Sleep(time.Minute)
		feed.set(func() {
			if !slices.ContainsFunc(feed.published, func(c store.Change) bool { return c.Level == policy.LevelQuorum }) {
				t.Errorf("the others were never told: %+v", feed.published)
			}
		})
	})
}
