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

// News carries what one instance did to a key to all others: it tells the feed, and
// asks it again and again what others told.
type News struct {
	feed   store.Feed
	timing *clock.Timing
	ids    *store.EventIDs
	heard  func(context.Context, *store.Change) // acts on what another instance did
	holds  func(*store.Change) bool             // whether a change of this instance is still true

	// run's alone:
	since  store.Instant              // from when on changes may be new
	polled time.Time                  // when the last poll began that succeeded; zero: none did
	leapt  time.Time                  // when the clock went ahead of the time that passed; zero: it did not
	seen   map[store.EventID]struct{} // what was read last

	level     atomic.Pointer[policy.Level] // to publish and to read at; nil: the feed's own
	reachable atomic.Bool                  // the feed answered when it was asked last
	wake      chan struct{}
	mu        sync.Mutex
	queue     []announcement
}

// announcement is a change that is to be published, and the soonest time to.
type announcement struct {
	change store.Change
	ends   store.Instant // when nothing depends on it any more
	ripe   time.Time
	tries  int // that failed
}

const (
	// PollEvery is how long a change waits to be read at most: three chances a second.
	PollEvery = 300 * time.Millisecond
	// pollOverlap is what every poll reads again, beside the tolerance of clocks and two
	// store timeouts, one from the making of a change to its publishing and one for that:
	// for a store that was late, or a process that paused.
	pollOverlap = 2 * time.Second
	// ChangesLive is the longest life of a change, and how far back an instance reads when
	// it starts: it then knows all blocks.
	ChangesLive = policy.MaxWindow
	// NewsLives is how long the news of a reset or a refund lives, unless it has to
	// outlast a block: who can't be told for longer goes by what it knew.
	NewsLives = time.Hour
	// CatchUp is how long a poll that reads back further than farBack may take for each
	// catchUpPart that it reads at once: what it has got so far it need not read again.
	CatchUp     = 30 * time.Second
	catchUpPart = 32 * time.Hour
	farBack     = time.Minute
	// maxSeen bounds the changes that are known to have been acted on: some 10 MiB. Past
	// it the oldest are acted on again, which changes nothing.
	maxSeen = 1 << 18

	// maxAnnouncements bounds the changes that wait to be published: 64 Ki of some 150
	// bytes. Past it, a block holds where it was made alone.
	maxAnnouncements = 1 << 16
	// lastNews is how long what is left may take when the engine ends.
	lastNews = 2 * time.Second
	// publishers is how many changes are published at the same time.
	publishers = 8
	// longestPublishWait is the longest wait before a change that could not be published
	// is tried again; the first is a store timeout, and each twice the last.
	longestPublishWait = 30 * time.Second
)

// NewNews returns news that go by feed. heard acts on what another instance did, and holds says
// whether a change of this instance is still worth telling.
func NewNews(
	feed store.Feed, ids *store.EventIDs, timing *clock.Timing, heard func(context.Context, *store.Change), holds func(*store.Change) bool,
) *News {
	n := &News{feed: feed, timing: timing, ids: ids, heard: heard, holds: holds, wake: make(chan struct{}, 1)}
	n.since = timing.Instant().Add(-ChangesLive - n.overlap())
	return n
}

func (n *News) overlap() time.Duration {
	return 2*n.timing.Tolerance + 2*n.timing.StoreTimeout + pollOverlap
}

// LivesUntil returns the time to live, in whole seconds, of a change that matters until
// end.
func LivesUntil(end, now store.Instant) time.Duration {
	return min(clock.WholeSeconds(max(0, end.Sub(now))), ChangesLive)
}

// Run reads and publishes until ctx ends; what waits to be published then is tried once
// more.
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

// Poll acts on what is new. Where it fails, the next one reads back as far.
func (n *News) Poll(ctx context.Context) error {
	began, now := time.Now(), n.timing.Instant()
	from, limit := n.since, n.timing.StoreTimeout
	if now.Sub(from) > farBack { // some that stay may have been published before
		if err := n.recall(ctx); err != nil {
			return errors.Join(err, n.act(ctx, now.Add(-n.overlap()), store.Distant, n.timing.StoreTimeout))
		}
	}
	for ; now.Sub(from) > catchUpPart; from = from.Add(catchUpPart) {
		until := from.Add(catchUpPart)
		if err := n.act(ctx, from, until, CatchUp); err != nil { // what is new is heard all the same
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

// recall acts on the overrides that stay.
func (n *News) recall(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, CatchUp)
	defer cancel()
	level := policy.Level("")
	if reach := n.level.Load(); reach != nil {
		level = *reach
	}
	stay, err := n.feed.Overrides(ctx, level)
	if err != nil && level != "" { // as in act
		stay, _ = n.feed.Overrides(ctx, "")
	}
	for i := range stay {
		n.heard(ctx, &stay[i])
	}
	return err
}

// act acts on what was published from an instant until another, within a time.
func (n *News) act(ctx context.Context, since, until store.Instant, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	q := store.ChangeQuery{Since: since, Until: until}
	if level := n.level.Load(); level != nil {
		q.Level = *level
	}
	changes, err := n.feed.Changes(ctx, &q)
	if err != nil && q.Level != "" { // what is within reach is heard, and asked for again
		q.Level = ""
		changes, _ = n.feed.Changes(ctx, &q)
	}
	if err != nil && len(changes) == 0 {
		return err
	}
	slices.SortFunc(changes, func(a, b store.Change) int { // what came after a reset comes after it here
		return cmp.Or(cmp.Compare(a.ID.Instant(), b.ID.Instant()), bytes.Compare(a.ID[:], b.ID[:]))
	})
	for i := range changes {
		c := &changes[i]
		own := n.ids.Made(c.ID) && c.Kind != store.ChangeOverride // of which it may not know that it was told
		if _, acted := n.seen[c.ID]; !acted && !own {
			n.heard(ctx, c)
		}
	}
	n.note(changes)
	return err
}

// Bounds of what is made of a clock that goes ahead of the time that has passed.
const (
	newsLeap = time.Second // further than that; the overlap of what is read has more to spare
	// newsDoubt is for how long it is not believed: by then it was measured, and would be
	// known to be beyond the tolerance.
	newsDoubt = 5 * time.Second
)

// moveOn has the next poll read what is dated from an instant on, after one that began at a
// time and succeeded. A clock that is ahead would pass over what others date, for good: it
// is not gone by while it is beyond the tolerance, nor while that may just not be known yet.
func (n *News) moveOn(began time.Time, to store.Instant) {
	first, passed := n.polled.IsZero(), began.Sub(n.polled)
	steady := n.since.Add(passed)
	n.polled = began
	switch {
	case n.timing.IsSkewed():
		n.leapt = time.Time{}
	case first || to <= steady.Add(newsLeap):
		n.leapt, n.since = time.Time{}, to
	case n.leapt.IsZero() || passed > newsLeap: // where polls failed, so may have the measuring
		n.leapt, n.since = began, steady
	case began.Sub(n.leapt) < newsDoubt:
		n.since = steady
	default:
		n.leapt, n.since = time.Time{}, to
	}
}

// note remembers the newest of changes.
func (n *News) note(changes []store.Change) {
	changes = changes[max(0, len(changes)-maxSeen):]
	n.seen = make(map[store.EventID]struct{}, len(changes))
	for i := range changes {
		n.seen[changes[i].ID] = struct{}{}
	}
}

// Announce publishes c in the background, as soon as the feed answers. A nil n tells nobody.
func (n *News) Announce(c *store.Change) {
	if n == nil {
		return
	}
	n.push(announcementOf(c))
	n.nudge()
}

// AnnounceAgain publishes c in the background, which could not be published just now.
func (n *News) AnnounceAgain(c *store.Change) {
	again := announcementOf(c)
	again.tries = 1
	n.push(again)
}

func announcementOf(c *store.Change) announcement {
	return announcement{change: *c, ends: c.ID.Instant().Add(c.TTL)}
}

// push queues a, to be published after a wait if it failed before.
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

// nudge has speak look at the queue.
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
			bounded.Each(publishers, slices.Values(n.due(n.isDue)), func(a announcement) { n.retry(ctx, a) })
			continue
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(n.timing.StoreTimeout, lastNews))
		defer cancel()
		all := n.due(func(*announcement) bool { return true })
		bounded.Each(publishers, slices.Values(all), func(a announcement) { n.retry(ctx, a) })
		return
	}
}

// due takes out of the queue what is.
func (n *News) due(is func(*announcement) bool) (due []announcement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.queue = slices.DeleteFunc(n.queue, func(a announcement) bool {
		if is(&a) {
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

// retry publishes a if it is still true, and queues it again if that failed, or the clock is
// beyond the tolerance.
func (n *News) retry(ctx context.Context, a announcement) {
	c := &a.change
	now, err := n.timing.Checked()
	if err == nil {
		if !n.holds(c) || !n.redate(&a, now) {
			return
		}
		err = n.Publish(ctx, c)
	}
	if err != nil {
		a.tries++
		n.push(a)
	}
}

// redate gives a's change another id if it has waited, as others have read past the time
// when it was made, or was made by a clock that was ahead. It returns false when nothing
// depends on it any more.
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
	near := *c // who is within reach hears of it; the others when it is tried again
	near.Level = ""
	if n.feed.Publish(ctx, &near) == nil {
		err = store.Untold(err)
	}
	return err
}

// Reach has what is told and heard asked for at level; empty: the feed's own.
func (n *News) Reach(level policy.Level) { n.level.Store(&level) }
