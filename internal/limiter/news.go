package limiter

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// news carries what one instance did to a key to all others: it tells the feed, and
// asks it again and again what others told.
type news struct {
	feed  store.Feed
	opts  *Options
	ids   *store.EventIDs
	heard func(context.Context, *store.Change) // acts on what another instance did
	holds func(*store.Change) bool             // whether a change of this instance is still true

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
	// pollEvery is how long a change waits to be read at most: three chances a second.
	pollEvery = 300 * time.Millisecond
	// pollOverlap is what every poll reads again, beside the tolerance of clocks and two
	// store timeouts, one from the making of a change to its publishing and one for that:
	// for a store that was late, or a process that paused.
	pollOverlap = 2 * time.Second
	// changesLive is the longest life of a change, and how far back an instance reads when
	// it starts: it then knows all blocks.
	changesLive = policy.MaxWindow
	// newsLives is how long the news of a reset or a refund lives, unless it has to
	// outlast a block: who can't be told for longer goes by what it knew.
	newsLives = time.Hour
	// catchUp is how long a poll that reads back further than farBack may take for each
	// catchUpPart that it reads at once: what it has got so far it need not read again.
	catchUp     = 30 * time.Second
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

func newNews(feed store.Feed, ids *store.EventIDs, opts *Options) *news {
	n := &news{feed: feed, opts: opts, ids: ids, wake: make(chan struct{}, 1)}
	n.since = opts.now().Add(-changesLive - n.overlap())
	return n
}

func (n *news) overlap() time.Duration {
	return 2*n.opts.ClockTolerance + 2*n.opts.StoreTimeout + pollOverlap
}

// livesUntil returns the time to live, in whole seconds, of a change that matters until
// end.
func livesUntil(end, now store.Instant) time.Duration {
	return min(wholeSeconds(max(0, end.Sub(now))), changesLive)
}

// run reads and publishes until ctx ends; what waits to be published then is tried once
// more.
func (n *news) run(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() { n.listen(ctx) })
	both.Go(func() { n.speak(ctx) })
	both.Wait()
}

func (n *news) listen(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		n.reachable.Store(n.poll(ctx) == nil)
		n.nudge()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// poll acts on what is new. Where it fails, the next one reads back as far.
func (n *news) poll(ctx context.Context) error {
	began, now := time.Now(), n.opts.now()
	from, limit := n.since, n.opts.StoreTimeout
	for ; now.Sub(from) > catchUpPart; from = from.Add(catchUpPart) {
		until := from.Add(catchUpPart)
		if err := n.act(ctx, from, until, catchUp); err != nil { // what is new is heard all the same
			return errors.Join(err, n.act(ctx, now.Add(-n.overlap()), store.Distant, n.opts.StoreTimeout))
		}
		if !n.opts.skewed() && (n.polled.IsZero() || until <= n.since.Add(began.Sub(n.polled))) {
			n.since = until
		}
	}
	if now.Sub(from) > farBack {
		limit = catchUp
	}
	if err := n.act(ctx, from, store.Distant, limit); err != nil {
		return err
	}
	n.moveOn(began, now.Add(-n.overlap()))
	return nil
}

// act acts on what was published from an instant until another, within a time.
func (n *news) act(ctx context.Context, since, until store.Instant, limit time.Duration) error {
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
func (n *news) moveOn(began time.Time, to store.Instant) {
	first, passed := n.polled.IsZero(), began.Sub(n.polled)
	steady := n.since.Add(passed)
	n.polled = began
	switch {
	case n.opts.skewed():
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

// CatchUp learns what others did before this instance started. Run does so as well: who
// calls CatchUp before knows it when it makes its first decision. It must not be called
// while Run runs.
func (e *Engine) CatchUp(ctx context.Context) error {
	if e.news == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	return e.news.poll(ctx)
}

// note remembers the newest of changes.
func (n *news) note(changes []store.Change) {
	changes = changes[max(0, len(changes)-maxSeen):]
	n.seen = make(map[store.EventID]struct{}, len(changes))
	for i := range changes {
		n.seen[changes[i].ID] = struct{}{}
	}
}

// announce publishes c in the background, as soon as the feed answers.
func (n *news) announce(c *store.Change) {
	n.push(announcementOf(c))
	n.nudge()
}

func announcementOf(c *store.Change) announcement {
	return announcement{change: *c, ends: c.ID.Instant().Add(c.TTL)}
}

// push queues a, to be published after a wait if it failed before.
func (n *news) push(a announcement) {
	if a.tries > 0 {
		a.ripe = time.Now().Add(min(n.opts.StoreTimeout<<min(a.tries-1, 16), longestPublishWait))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) < maxAnnouncements {
		n.queue = append(n.queue, a)
	}
}

// nudge has speak look at the queue.
func (n *news) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *news) speak(ctx context.Context) {
	for {
		select {
		case <-n.wake:
			shareOut(publishers, slices.Values(n.due(n.isDue)), func(a announcement) { n.retry(ctx, a) })
			continue
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(n.opts.StoreTimeout, lastNews))
		defer cancel()
		all := n.due(func(*announcement) bool { return true })
		shareOut(publishers, slices.Values(all), func(a announcement) { n.retry(ctx, a) })
		return
	}
}

// due takes out of the queue what is.
func (n *news) due(is func(*announcement) bool) (due []announcement) {
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
func (n *news) isDue(a *announcement) bool {
	return a.tries == 0 || n.reachable.Load() && !a.ripe.After(time.Now())
}

// retry publishes a if it is still true, and queues it again if that failed, or the clock is
// beyond the tolerance.
func (n *news) retry(ctx context.Context, a announcement) {
	c := &a.change
	now, err := n.opts.instant()
	if err == nil {
		if !n.holds(c) || !n.redate(&a, now) {
			return
		}
		err = n.publish(ctx, c)
	}
	if err != nil {
		a.tries++
		n.push(a)
	}
}

// redate gives a's change another id if it has waited, as others have read past the time
// when it was made, or was made by a clock that was ahead. It returns false when nothing
// depends on it any more.
func (n *news) redate(a *announcement, now store.Instant) bool {
	if now.Sub(a.change.ID.Instant()).Abs() > n.opts.StoreTimeout {
		a.change.ID, a.change.TTL = n.ids.Next(now), livesUntil(a.ends, now)
	}
	return a.ends > now
}

// publish publishes c within a store timeout.
func (n *news) publish(ctx context.Context, c *store.Change) error {
	ctx, cancel := context.WithTimeout(ctx, n.opts.StoreTimeout)
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
		err = untold(err)
	}
	return err
}

// reach has news reach as far as the promises of plans do: where some hold over the cluster
// and the feed's own levels within a data centre, what is told in one would be heard in
// another only while nothing keeps it from getting there.
func (n *news) reach(plans map[string]*plan) {
	level := policy.Level("")
	for _, p := range plans {
		compared := p.Cell || p.Guarantee == policy.GuaranteeSerial
		overAll := p.Consistency.Scope() == policy.ScopeCluster || compared && n.opts.Serial.Scope() == policy.ScopeCluster
		if overAll && n.opts.Consistency.Scope() == policy.ScopeDatacenter {
			level = policy.LevelQuorum
		}
	}
	n.level.Store(&level)
}

// publish does what kind says for t on this instance, and tells the others; those that read
// under another hash key, too. Should that fail, they are told later.
func (e *Engine) publish(ctx context.Context, kind store.ChangeKind, t *target) error {
	now := e.now()
	_, clockErr := e.instant()
	var failed error
	for _, key := range append([]store.Key{t.key}, t.old...) {
		c := &store.Change{ID: e.ids.Next(now), Kind: kind, Key: key, TTL: wholeSeconds(min(t.plan.resetTTL, newsLives))}
		e.dropHints(key)
		lifted := block{}
		if kind == store.ChangeReset {
			lifted = e.blocks.lift(key, e.resetBy(c))
			c.TTL = max(c.TTL, livesUntil(lifted.ends, now))
		}
		switch {
		case e.news == nil:
		case e.exclusive == nil:
			err := clockErr
			if err == nil {
				err = e.news.publish(ctx, c)
			}
			if err != nil {
				failed = errors.Join(failed, err)
				again := announcementOf(c)
				again.tries = 1
				e.news.push(again)
			}
		case lifted != block{}: // there is nobody to tell but who reads the feed when it is started anew
			e.spread(c)
		}
	}
	return failed
}

// tellReset tells every instance that t was reset. The error is a StoreError.
func (e *Engine) tellReset(ctx context.Context, t *target) error {
	if err := e.publish(ctx, store.ChangeReset, t); err != nil {
		return &StoreError{Recorded: count.RecordedUnknown, Err: fmt.Errorf(
			"%w: what was counted is forgotten, but other instances may block the identifier until they are told: %w", store.ErrUnavailable, err)}
	}
	return nil
}

// spread publishes c in the background, if there is a feed.
func (e *Engine) spread(c *store.Change) {
	if e.news != nil {
		e.news.announce(c)
	}
}

// heard acts on a change that another instance made, or this one before it was started
// anew. To act on one twice changes nothing.
func (e *Engine) heard(ctx context.Context, c *store.Change) {
	switch c.Kind {
	case store.ChangeReset:
		e.heardReset(ctx, c)
	case store.ChangeRefund:
		e.dropHints(c.Key)
	case store.ChangeBlock:
		e.blocks.learn(c.Key, e.blockIn(c), e.now())
	case store.ChangeOverride:
		e.learnOverride(c)
	case store.ChangeHold:
		e.heardHold(ctx, c)
	}
}

func (e *Engine) heardReset(ctx context.Context, c *store.Change) {
	at, now := e.resetBy(c), e.now()
	e.dropHints(c.Key)
	lifted := e.blocks.lift(c.Key, at)
	if lifted.mine && lifted.ends > c.ID.Instant().Add(c.TTL) {
		// Who reset the key did not know of this block yet: whoever starts anew must not
		// find the news of the block alone.
		e.spread(&store.Change{ID: e.ids.Next(now), Kind: store.ChangeReset, Key: c.Key, TTL: livesUntil(lifted.ends, now)})
	}
	if e.local != nil {
		forgetIn(ctx, e.local.store, c.Key, at, max(c.TTL, time.Second))
	}
}

// resetBy returns the instant up to which c, a reset, forgets: whatever was dated before
// it, by any clock.
func (e *Engine) resetBy(c *store.Change) store.Instant {
	return c.ID.Instant().Add(2 * e.opts.ClockTolerance)
}

// blockIn returns the block that c tells of. A store may not tell c's time to live.
func (e *Engine) blockIn(c *store.Change) block {
	b := block{made: c.ID.Instant(), until: c.Until, strikes: max(1, c.Strikes), ends: c.Until.Add(policy.MaxWindow)}
	if c.TTL > 0 {
		b.ends = max(c.Until, e.now().Add(c.TTL))
	}
	return b
}

// stillTrue reports whether c, a change of this instance, is worth telling: a block may
// have been lifted, or be part of a longer one that others told.
func (e *Engine) stillTrue(c *store.Change) bool {
	return c.Kind != store.ChangeBlock || e.blocks.get(c.Key).until == c.Until
}

// dropHints forgets what this instance remembers of key to ask less.
func (e *Engine) dropHints(key store.Key) {
	if e.shared != nil {
		e.shared.counted.forgetDenial(key)
	}
	e.denied.changes.note(&key)
}

// forgetIn forgets what store, of this instance alone, has counted for key up to at.
// There is nothing to be done about it if that fails.
func forgetIn(ctx context.Context, in store.Exclusive, key store.Key, at store.Instant, ttl time.Duration) {
	q := store.Query{Key: key, Counts: true, Tally: true, Cell: true}
	w := store.Write{Key: key, Reset: at, ResetTTL: ttl, Counts: true}
	for span := range store.SpanCount {
		q.Logs = append(q.Logs, store.LogQuery{Span: span, Max: 1})
		w.Logs = append(w.Logs, store.LogWrite{Span: span})
	}
	if s, err := in.Read(ctx, &q); err != nil || s.Empty() {
		return
	}
	_ = in.Update(ctx, &q, func(s *store.State, to *store.Write) {
		if s.Reset >= at {
			return
		}
		*to = w
		if version := s.Cell.Version; version != (store.EventID{}) {
			to.Cell = &store.CellWrite{If: version}
		}
	})
}
