package cassandra

import (
	"cmp"
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Requests to the table of changes have the store's own levels unless they name others, as a change belongs to no policy.
// Publishing can be repeated, as the same id is the same row.
const (
	changesInsert  = "INSERT INTO changes (bucket, id, kind, key, until, strikes, details) VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?"
	changesBetween = "SELECT id, kind, key, until, strikes, details FROM changes " +
		"WHERE bucket IN ? AND id >= minTimeuuid(?) AND id < minTimeuuid(?)"
)

const (
	changeBucket = store.Instant(time.Hour / time.Millisecond) // the time span of a partition
	// longestChange is the longest life of a change, and how far back changes are read. It is one and a half times as long
	// as the longest reset is kept.
	longestChange = 3 * policy.MaxWindow
	// changesAhead is how far the clock that dated a change may be ahead of this instance's.
	changesAhead = time.Hour
	// changeBuckets is the most partitions that one request reads: a poll needs two or three, a start some hundreds.
	changeBuckets = 32
	changeRows    = 500 // rows of one page
	// shortestPoll is the shortest time, in milliseconds, that is read by a request of its own if a node can't read a longer
	// one.
	shortestPoll store.Instant = 100
)

var _ store.Feed = (*Store)(nil)

// Publish makes c known to every instance for c's time to live. An override is also kept, atomically with its news.
func (s *Store) Publish(ctx context.Context, c *store.Change) error {
	level, err := levelOf(cmp.Or(c.Level, s.config.Consistency.Write))
	if err != nil {
		return err
	}
	news := gocql.BatchEntry{Stmt: changesInsert, Idempotent: true, Args: []any{
		int64(bucketOf(c.ID.Instant())), gocql.UUID(c.ID), string(c.Kind), c.Key.Bytes(),
		int64(c.Until), c.Strikes, detailsOf(c), whole(min(c.TTL, longestChange)),
	}}
	if c.Kind == store.ChangeOverride {
		batch := s.batch(ctx, gocql.LoggedBatch, level)
		batch.Entries = []gocql.BatchEntry{keepEntry(c), news}
		err = s.execBatch(batch)
	} else {
		err = s.exec(s.session.Query(news.Stmt, news.Args...).WithContext(ctx).Consistency(level))
	}
	if err != nil {
		return conn.Unavailable("publishing", err)
	}
	return nil
}

// Changes returns the changes of q that have not expired.
func (s *Store) Changes(ctx context.Context, q *store.ChangeQuery) ([]store.Change, error) {
	level, err := levelOf(cmp.Or(q.Level, s.config.Consistency.Read))
	if err != nil {
		return nil, err
	}
	now := store.InstantOf(s.config.Now())
	end := min(cmp.Or(q.Until, store.Distant), bucketOf(now.Add(changesAhead))+changeBucket)
	var changes []store.Change
	for from := max(q.Since, now.Add(-longestChange)); from < end; {
		until := min(bucketOf(from)+changeBuckets*changeBucket, end)
		if changes, err = s.appendChanges(ctx, level, changes, from, until); err != nil {
			return nil, conn.Unavailable("reading changes", err)
		}
		from = until
	}
	return changes, nil
}

// appendChanges appends the changes between two instants to changes. Expired changes remain as tombstones for gc_grace, and a
// node refuses to walk over too many of them in one request. Then appendChanges reads the two halves.
func (s *Store) appendChanges(
	ctx context.Context, level gocql.Consistency, changes []store.Change, from, until store.Instant,
) ([]store.Change, error) {
	appended, err := s.appendChangesAtOnce(ctx, level, changes, from, until)
	if until-from < 2*shortestPoll || !tooLong(err) {
		return appended, err
	}
	middle := from + (until-from)/2
	if changes, err = s.appendChanges(ctx, level, changes, from, middle); err != nil {
		return nil, err
	}
	return s.appendChanges(ctx, level, changes, middle, until)
}

func (s *Store) appendChangesAtOnce(
	ctx context.Context, level gocql.Consistency, changes []store.Change, from, until store.Instant,
) ([]store.Change, error) {
	var buckets []int64
	for bucket := bucketOf(from); bucket < until; bucket += changeBucket {
		buckets = append(buckets, int64(bucket))
	}
	query := s.session.Query(changesBetween, buckets, int64(from), int64(until)).WithContext(ctx).Consistency(level).PageSize(changeRows)
	rows := s.repeated(query).Iter()
	var id gocql.UUID
	var kind string
	var key []byte
	var blocked int64
	var strikes int
	var details string
	for rows.Scan(&id, &kind, &key, &blocked, &strikes, &details) {
		if c, ok := changeOf(id, kind, key, blocked, strikes); ok {
			c.Details = details
			changes = append(changes, c)
		}
	}
	return changes, rows.Close()
}

// detailsOf returns the value to bind for c's details. If there are none, it is unset, which leaves no tombstone.
func detailsOf(c *store.Change) any {
	if c.Details == "" {
		return gocql.UnsetValue
	}
	return c.Details
}

// changeOf returns the change of a row. It returns false if a later version wrote the row, with another kind of key.
func changeOf(id gocql.UUID, kind string, key []byte, blocked int64, strikes int) (store.Change, bool) {
	if len(key) != store.KeySize {
		return store.Change{}, false
	}
	return store.Change{
		ID: store.EventID(id), Kind: store.ChangeKind(kind), Key: store.KeyFrom([store.KeySize]byte(key)),
		Until: store.Instant(blocked), Strikes: strikes,
	}, true
}

// bucketOf returns the start of the hour of i.
func bucketOf(i store.Instant) store.Instant { return i - i%changeBucket }
