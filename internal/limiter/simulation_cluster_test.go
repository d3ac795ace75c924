package limiter_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// cluster is what a Cassandra of three nodes gives, as a simulation needs it: every
// request reaches every replica after a time of its own or never, and is answered by
// those that the level waits for. All times are counted from the start of a schedule.
//
// Nothing happens in it by itself. When a request comes, its whole way is drawn; a read
// looks back at what had reached the replicas by the time that it reached them.
type cluster struct {
	start   time.Time
	weather weather
	clocks  [nodes]time.Duration // by how much the nodes' clocks are ahead

	mu         sync.Mutex
	rng        *rand.Rand
	arrivals   []*arrival
	partitions map[store.Key]*partition
	requests   int
}

const (
	nodes = 3
	never = time.Duration(1<<63 - 1)
	// longPause is the longest that a coordinator, a message or a process stops for: some
	// rows of the shortest windows expire meanwhile.
	longPause = 8 * time.Second
)

// weather is how slow and how faulty a cluster is; all but the times are probabilities.
type weather struct {
	fast, slow time.Duration // the longest usual way of a message, and the longest of the others
	slowly     float64       // that a message takes the long one
	lost       float64       // that a message to or from a replica is lost, or comes much later
	refused    float64       // that a coordinator refuses a request at once: too few replicas
	silent     float64       // that nobody hears of what became of a request
	broken     float64       // that a request is answered by an error, whatever became of it
	paused     float64       // that a coordinator stops before it does anything
	twice      float64       // that the driver sends a write of events again, which may land much later
}

// partition is what the replicas hold of one key.
type partition struct {
	logs     [store.SpanCount]logRows
	added    []addition
	put      []total
	resets   resetWords // of the counters
	versions []version  // of the cell, in the order in which they were applied
	attempts []*attempt // on the cell, that are still to take place
}

type logRows struct {
	rows   []*eventRow
	byID   map[store.EventID]*eventRow
	resets resetWords
}

// eventRow is one event and what was said of it, each word as far as it has come.
type eventRow struct {
	event store.Event
	words []word
}

type word struct {
	says    int // the later one stands: appended, settled, removed
	ends    store.Instant
	cost    int64
	reaches [nodes]time.Duration
	expires int64 // in seconds since the Unix epoch
}

const (
	saysAppended = iota
	saysSettled
	saysRemoved
)

// addition is one addition to a counter.
type addition struct {
	store.Count
	reaches [nodes]time.Duration
}

var (
	errRefused = errors.Join(store.ErrUnavailable, store.ErrNotStored, store.ErrTooFewReplicas)
	errBroken  = errors.Join(store.ErrUnavailable, errors.New("the connection broke"))
)

// arrival is a request that has come and has not been looked at.
type arrival struct {
	at    time.Duration
	from  int
	kind  int
	key   store.Key
	size  int64
	begin func()
}

func (a *arrival) compare(b *arrival) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.from, b.from), cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.key.Prefix(), b.key.Prefix()), cmp.Compare(a.size, b.size))
}

// enter calls a.begin when all requests of this instant have come: those that come at
// the same time are taken in an order that no scheduler has a hand in, so that a seed
// gives the same schedule again.
func (c *cluster) enter(a *arrival) {
	c.mu.Lock()
	a.at = c.now()
	c.arrivals = append(c.arrivals, a)
	c.requests++
	c.mu.Unlock()
	time.Sleep(time.Nanosecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	slices.SortStableFunc(c.arrivals, (*arrival).compare)
	n := 0
	for n < len(c.arrivals) && c.arrivals[n].at < now {
		c.arrivals[n].begin()
		n++
	}
	c.arrivals = slices.Delete(c.arrivals, 0, n)
}

func (c *cluster) now() time.Duration { return time.Since(c.start) }

func (c *cluster) partition(key store.Key) *partition {
	p := c.partitions[key]
	if p == nil {
		p = new(partition)
		c.partitions[key] = p
	}
	return p
}

// read asks for q, one request for each log and one for the counters.
func (c *cluster) read(ctx context.Context, from *process, q *store.Query) (store.State, error) {
	if q.Cell {
		return c.readCell(ctx, from, q)
	}
	trips := make([]trip, len(q.Logs)+1)
	if !q.Counts && !q.Tally {
		trips = trips[:len(q.Logs)]
	}
	c.enter(&arrival{from: from.n, kind: 0, key: q.Key, begin: func() {
		for i := range trips {
			trips[i] = c.travel(q.Level)
		}
	}})
	if err := from.await(ctx, trips...); err != nil {
		return store.State{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.partition(q.Key)
	s := store.State{}
	for i := range q.Logs {
		rows := &p.logs[q.Logs[i].Span]
		events := newest(rows.seen(&trips[i], c.second(&trips[i]), q.Logs[i].After), q.Logs[i].Max)
		s.Logs = append(s.Logs, store.Log{Events: events})
		if len(events) > 0 { // it is read beside them
			s.Reset = max(s.Reset, rows.resets.seen(&trips[i]))
		}
	}
	if q.Counts {
		s.Counts = p.countsSeen(&trips[len(q.Logs)], q.ExpireAfter)
		s.Reset = max(s.Reset, p.resets.seen(&trips[len(q.Logs)]))
	}
	if q.Tally {
		t := &trips[len(q.Logs)]
		s.Counts = p.totalsSeen(t, c.second(t), q.ExpireAfter)
		if len(s.Counts) > 0 { // it is read beside them
			s.Reset = max(s.Reset, p.resets.seen(t))
		}
	}
	return s, nil
}

// seen returns the events that t has seen, the newest first.
func (l *logRows) seen(t *trip, second int64, after store.Instant) (events []store.Event) {
	for _, r := range l.rows {
		if e, alive := r.seen(t, second); alive && e.At > after {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b store.Event) int { return cmp.Compare(b.At, a.At) })
	return events
}

// seen returns the event as t has seen it, and whether it is there.
func (r *eventRow) seen(t *trip, second int64) (e store.Event, alive bool) {
	var last *word
	for i := range r.words {
		w := &r.words[i]
		if t.sees(&w.reaches) && (last == nil || cmp.Or(cmp.Compare(w.says, last.says), cmp.Compare(w.expires, last.expires)) > 0) {
			last = w
		}
	}
	if last == nil || last.says == saysRemoved || last.expires <= second {
		return e, false
	}
	e = r.event
	e.Ends, e.Cost = last.ends, last.cost
	return e, true
}

// newest returns the newest most of events, the oldest first, and as many more as it
// takes to pass over holds among them.
func newest(events []store.Event, most int) []store.Event {
	for limit := most; ; limit *= 2 {
		kept := slices.Clone(events[:min(limit, len(events))])
		settled := 0
		for i := range kept {
			if kept[i].Ends == 0 {
				settled++
			}
		}
		if len(kept) < limit || settled >= most {
			slices.Reverse(kept)
			return kept
		}
	}
}

func (p *partition) countsSeen(t *trip, after store.Instant) (counts []store.Count) {
	for i := range p.added {
		a := &p.added[i]
		if a.Expires <= after || !t.sees(&a.reaches) {
			continue
		}
		same := func(c store.Count) bool { return c.Limit == a.Limit && c.Start == a.Start && c.Epoch == a.Epoch }
		if j := slices.IndexFunc(counts, same); j >= 0 {
			counts[j].Units += a.Units
		} else {
			counts = append(counts, a.Count)
		}
	}
	return counts
}

// write stores w, one request for each thing that it says of each log and one for the
// counters.
func (c *cluster) write(ctx context.Context, from *process, w *store.Write) error {
	if w.Cell != nil {
		return c.writeCell(ctx, from, w)
	}
	var trips []trip
	c.enter(&arrival{from: from.n, kind: 1 + len(w.Remove), key: w.Key, size: sizeOf(w), begin: func() { trips = c.store(w) }})
	return from.await(ctx, trips...)
}

// sizeOf tells writes of one key apart as far as it can.
func sizeOf(w *store.Write) (n int64) {
	n = int64(w.Reset)
	for i := range w.Events {
		n += int64(w.Events[i].At)
	}
	for i := range w.Remove {
		n += int64(w.Remove[i].Instant())
	}
	for i := range w.Add {
		n += w.Add[i].Units + int64(w.Add[i].Start)
	}
	for i := range w.Put {
		n += w.Put[i].Stamp
	}
	return n
}

func (c *cluster) store(w *store.Write) (trips []trip) {
	p := c.partition(w.Key)
	for i := range w.Logs {
		log, rows := &w.Logs[i], &p.logs[w.Logs[i].Span]
		if len(w.Events) > 0 {
			trips = append(trips, c.travel(w.Level))
			c.append(rows, w, log, &trips[len(trips)-1])
		}
		if len(w.Remove) > 0 {
			trips = append(trips, c.travel(w.Level))
			for _, id := range w.Remove {
				rows.say(store.Event{ID: id, At: id.Instant()}, word{says: saysRemoved, reaches: trips[len(trips)-1].reaches})
			}
		}
	}
	if len(w.Add) > 0 {
		t := c.travel(w.Level)
		for _, count := range w.Add {
			p.added = append(p.added, addition{count, t.reaches})
		}
		trips = append(trips, t)
	}
	if len(w.Put) > 0 {
		trips = append(trips, c.travel(w.Level))
		c.put(p, w, &trips[len(trips)-1])
	}
	return append(trips, c.reset(p, w)...)
}

// append stores w's events as t reaches the replicas, and now and then a second time.
func (c *cluster) append(rows *logRows, w *store.Write, log *store.LogWrite, t *trip) {
	ways := []*trip{t}
	if t.fails == nil && c.chance(c.weather.twice) {
		again := c.travel(w.Level)
		ways = append(ways, &again)
	}
	for _, way := range ways {
		said := word{says: saysAppended, reaches: way.reaches, expires: c.second(way) + int64(log.TTL/time.Second)}
		if w.Settle {
			said.says = saysSettled
		}
		for _, e := range w.Events {
			said.ends = e.Ends
			rows.say(e, said)
		}
	}
}

func (l *logRows) say(e store.Event, said word) {
	r := l.byID[e.ID]
	if r == nil {
		if l.byID == nil {
			l.byID = make(map[store.EventID]*eventRow)
		}
		r = &eventRow{event: e}
		l.byID[e.ID] = r
		l.rows = append(l.rows, r)
	}
	said.cost = e.Cost
	r.words = append(r.words, said)
}
