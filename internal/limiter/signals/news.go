package signals

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// News distributes the changes that instances make to keys: it publishes this instance's to the feed, and polls the
// feed for those of others.
type News struct {
	feed      store.Feed
	timing    *clock.Timing
	ids       *store.EventIDs
	heard     func(context.Context, *store.Change) // acts on another instance's change
	stillTrue func(*store.Change) bool             // reports whether a change of this instance is still true

	// Only the goroutine of listen uses these.
	since  store.Instant              // changes published from this instant on may be new
	polled time.Time                  // when the last successful poll began; zero: there was none
	leapt  time.Time                  // when the clock leapt further than the time that passed; zero: it did not
	seen   map[store.EventID]struct{} // the changes of the last read

	level     atomic.Pointer[policy.Level] // for writes and reads; nil: the feed's own
	reachable atomic.Bool                  // the last poll succeeded
	wake      chan struct{}
	mu        sync.Mutex
	queue     []announcement
}

// announcement is a change to be published, and the earliest time for that.
type announcement struct {
	change store.Change
	ends   store.Instant // when no decision depends on it any more
	ripe   time.Time     // the earliest time of the next attempt
	tries  int           // failed attempts
}

const (
	// PollEvery is the interval of polls: three a second.
	PollEvery = 300 * time.Millisecond
	// pollOverlap is the time before the last poll that each poll reads again, as a store can be late or a process paused. A
	// poll reads further back by twice the clocks' tolerance and by two store timeouts: one may pass between a change and its
	// publication, and one during the publication.
	pollOverlap = 2 * time.Second
	// ChangesLive is the longest life of a change. An instance that starts reads back this far, so that it knows all blocks.
	ChangesLive = policy.MaxWindow
	// NewsLives is the time to live of news of a reset or a refund, unless they must outlast a block. An instance that can't
	// read the feed for longer misses them.
	NewsLives = time.Hour
	// CatchUp is the timeout for each catchUpPart of a poll that reads back further than farBack. Completed parts are not read
	// again.
	CatchUp     = 30 * time.Second
	catchUpPart = 32 * time.Hour
	farBack     = time.Minute
	// maxSeen bounds the changes that are remembered as handled: some 10 MiB. Beyond it the oldest are handled again, which
	// has no effect.
	maxSeen = 1 << 18

	// maxAnnouncements bounds the changes that wait to be published: 64 Ki of some 150 bytes each. Beyond it, new changes are
	// not published, so that a new block holds only on the instance that made it.
	maxAnnouncements = 1 << 16
	// lastNews is the timeout for the announcements that remain when the engine ends.
	lastNews = 2 * time.Second
	// publishers is the number of changes that are published at the same time.
	publishers = 8
	// longestPublishWait is the longest wait before another attempt to publish a change. The first wait is a store timeout,
	// and each further wait is twice as long.
	longestPublishWait = 30 * time.Second
)

// NewNews returns a News on feed. heard acts on a change of another instance, and stillTrue reports whether a change of
// this instance should still be published.
func NewNews(
	feed store.Feed, ids *store.EventIDs, timing *clock.Timing, heard func(context.Context, *store.Change), stillTrue func(*store.Change) bool,
) *News {
	n := &News{feed: feed, timing: timing, ids: ids, heard: heard, stillTrue: stillTrue, wake: make(chan struct{}, 1)}
	n.since = timing.Instant().Add(-ChangesLive - n.overlap())
	return n
}

func (n *News) overlap() time.Duration {
	return 2*n.timing.Tolerance + 2*n.timing.StoreTimeout + pollOverlap
}

// LivesUntil returns the time to live, in whole seconds from now on, of a change on which decisions depend until end.
func LivesUntil(end, now store.Instant) time.Duration {
	return min(clock.WholeSeconds(max(0, end.Sub(now))), ChangesLive)
}

// Run polls and publishes until ctx ends; then it tries once more to publish what remains.
func (n *News) Run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { n.listen(ctx) })
	both.Go(func() { n.speak(ctx) })
	both.Wait()
}

func (n *News) listen(ctx context.Context) {
	tick := time.NewTicker(PollEvery)
	defer tick.Stop()
	for {
		n.reachable.Store(n.Poll(ctx) == nil)
		n.nudge()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Poll acts on new changes. After a failure, the next poll reads back to the same instant.
func (n *News) Poll(ctx context.Context) error {
	began, now := time.Now(), n.timing.Instant()
	from, limit := n.since, n.timing.StoreTimeout
	if now.Sub(from) > farBack { // overrides without end may be older than from
		if err := n.recall(ctx); err != nil {
			return errors.Join(err, n.act(ctx, now.Add(-n.overlap()), store.Distant, n.timing.StoreTimeout))
		}
	}
	for ; now.Sub(from) > catchUpPart; from = from.Add(catchUpPart) {
		until := from.Add(catchUpPart)
		if err := n.act(ctx, from, until, CatchUp); err != nil { // the newest changes take effect nevertheless
			return errors.Join(err, n.act(ctx, now.Add(-n.overlap()), store.Distant, n.timing.StoreTimeout))
		}
		if !n.timing.IsSkewed() && (n.polled.IsZero() || until <= n.since.Add(began.Sub(n.polled))) {
			n.since = until
		}
	}
	if now.Sub(from) > farBack {
		limit = CatchUp
	}
	if err := n.act(ctx, from, store.Distant, limit); err != nil {
		return err
	}
	n.moveOn(began, now.Add(-n.overlap()))
	return nil
}

// recall acts on the overrides that have no end.
func (n *News) recall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, CatchUp)
	defer cancel()
	level := policy.Level("")
	if reach := n.level.Load(); reach != nil {
		level = *reach
	}
	stay, err := n.feed.Overrides(ctx, level)
	if err != nil && level != "" { // as in act, overrides on nodes within reach take effect
		stay, _ = n.feed.Overrides(ctx, "")
	}
	for i := range stay {
		n.heard(ctx, &stay[i])
	}
	return err
}

// act acts on the changes published since an instant and dated before until. It takes at most as long as limit.
func (n *News) act(ctx context.Context, since, until store.Instant, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	q := store.ChangeQuery{Since: since, Until: until}
	if level := n.level.Load(); level != nil {
		q.Level = *level
	}
	changes, err := n.feed.Changes(ctx, &q)
	if err != nil && q.Level != "" { // changes on nodes within reach take effect, and are read again
		q.Level = ""
		changes, _ = n.feed.Changes(ctx, &q)
	}
	if err != nil && len(changes) == 0 {
		return err
	}
	slices.SortFunc(changes, func(a, b store.Change) int { // so that changes after a reset take effect after it
		return cmp.Or(cmp.Compare(a.ID.Instant(), b.ID.Instant()), bytes.Compare(a.ID[:], b.ID[:]))
	})
	for i := range changes {
		c := &changes[i]
		own := n.ids.Made(c.ID) && c.Kind != store.ChangeOverride // an override may be stored although its publication failed
		if _, acted := n.seen[c.ID]; !acted && !own {
			n.heard(ctx, c)
		}
	}
	n.note(changes)
	return err
}

// Bounds on a clock that runs ahead of the time that has passed.
const (
	newsLeap = time.Second // the least difference that is a leap; the overlap of polls is larger
	// newsDoubt is how long a clock is not trusted after a leap. By then it has been measured, and it is known whether it is
	// beyond the tolerance.
	newsDoubt = 5 * time.Second
)

// moveOn sets the instant from which on the next poll reads, after a poll that began at the time began and succeeded. With a
// clock that is ahead, polls would miss changes of other instances for good. So the clock is not used while it is beyond the
// tolerance, or while that may not be known yet.
func (n *News) moveOn(began time.Time, to store.Instant) {
	first, passed := n.polled.IsZero(), began.Sub(n.polled)
	steady := n.since.Add(passed)
	n.polled = began
	switch {
	case n.timing.IsSkewed():
		n.leapt = time.Time{}
	case first || to <= steady.Add(newsLeap):
		n.leapt, n.since = time.Time{}, to
	case n.leapt.IsZero() || passed > newsLeap: // if polls failed, the measurement may have failed, too
		n.leapt, n.since = began, steady
	case began.Sub(n.leapt) < newsDoubt:
		n.since = steady
	default:
		n.leapt, n.since = time.Time{}, to
	}
}

// note remembers the ids of the newest changes.
func (n *News) note(changes []store.Change) {
	changes = changes[max(0, len(changes)-maxSeen):]
	n.seen = make(map[store.EventID]struct{}, len(changes))
	for i := range changes {
		n.seen[changes[i].ID] = struct{}{}
	}
}

// Announce publishes c in the background, as soon as the feed answers. A nil n does nothing.
func (n *News) Announce(c *store.Change) {
	if n == nil {
		return
	}
	n.push(announcementOf(c))
	n.nudge()
}

// AnnounceAgain publishes c in the background after an attempt that failed just now.
func (n *News) AnnounceAgain(c *store.Change) {
	again := announcementOf(c)
	again.tries = 1
	n.push(again)
}

func announcementOf(c *store.Change) announcement {
	return announcement{change: *c, ends: c.ID.Instant().Add(c.TTL)}
}

// push queues a. If an attempt has failed, the next one follows after a wait.
func (n *News) push(a announcement) {
	if a.tries > 0 {
		a.ripe = time.Now().Add(min(n.timing.StoreTimeout<<min(a.tries-1, 16), longestPublishWait))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) < maxAnnouncements {
		n.queue = append(n.queue, a)
	}
}

// nudge makes speak look at the queue.
func (n *News) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *News) speak(ctx context.Context) {
	for {
		select {
		case <-n.wake:
			bounded.Each(publishers, slices.Values(n.dequeue(n.isDue)), func(a announcement) { n.retry(ctx, a) })
			continue
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(n.timing.StoreTimeout, lastNews))
		defer cancel()
		all := n.dequeue(func(*announcement) bool { return true })
		bounded.Each(publishers, slices.Values(all), func(a announcement) { n.retry(ctx, a) })
		return
	}
}

// dequeue removes the announcements that match from the queue, and returns them.
func (n *News) dequeue(matches func(*announcement) bool) (due []announcement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = slices.DeleteFunc(n.queue, func(a announcement) bool {
		if matches(&a) {
			due = append(due, a)
			return true
		}
		return false
	})
	return due
}

// isDue reports whether a is new, or failed before and the feed answers again.
func (n *News) isDue(a *announcement) bool {
	return a.tries == 0 || n.reachable.Load() && !a.ripe.After(time.Now())
}

// retry publishes a if its change is still true. It queues a again if that fails, or if the clock is beyond the tolerance.
func (n *News) retry(ctx context.Context, a announcement) {
	c := &a.change
	now, err := n.timing.Checked()
	if err == nil {
		if !n.stillTrue(c) || !n.redate(&a, now) {
			return
		}
		err = n.Publish(ctx, c)
	}
	if err != nil {
		a.tries++
		n.push(a)
	}
}

// redate gives a's change a new id if it has waited, as other instances have read past its time, or if it was dated by a
// clock that was ahead. It returns false if no decision depends on the change any more.
func (n *News) redate(a *announcement, now store.Instant) bool {
	if now.Sub(a.change.ID.Instant()).Abs() > n.timing.StoreTimeout {
		a.change.ID, a.change.TTL = n.ids.Next(now), LivesUntil(a.ends, now)
	}
	return a.ends > now
}

// Publish publishes c within a store timeout.
func (n *News) Publish(ctx context.Context, c *store.Change) error {
	ctx, cancel := context.WithTimeout(ctx, n.timing.StoreTimeout)
	defer cancel()
	if level := n.level.Load(); level != nil {
		c.Level = *level
	}
	err := n.feed.Publish(ctx, c)
	if err == nil || c.Level == "" {
		return err
	}
	near := *c // instances within reach see it now, and the others after another attempt
	near.Level = ""
	if n.feed.Publish(ctx, &near) == nil {
		err = store.Untold(err)
	}
	return err
}

// Reach sets the level at which changes are published and read; empty: the feed's own.
func (n *News) Reach(level policy.Level) { n.level.Store(&level) }
