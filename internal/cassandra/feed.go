package cassandra

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// The requests to the table of changes, at the store's own levels: a change is no
// policy's. Publishing is repeatable: the same id is the same row.
const (
	changesInsert = "INSERT INTO changes (bucket, id, kind, key, until, strikes) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?"
	changesSince  = "SELECT id, kind, key, until, strikes FROM changes WHERE bucket IN ? AND id >= minTimeuuid(?)"
)

const (
	changeBucket = limiter.Instant(time.Hour / time.Millisecond) // how much time a partition holds
	// longestChange is the longest life of a change, and how far back one is looked for:
	// half as long again as the longest reset is remembered.
	longestChange = 3 * limiter.MaxWindow
	// changesAhead is how far ahead of this instance's clock the one may be that dated a
	// change.
	changesAhead = time.Hour
	// changeBuckets is how many partitions one request reads: who polls needs two or
	// three of them, who starts some hundreds.
	changeBuckets = 32
	changeRows    = 500 // of one page
)

var _ limiter.Feed = (*Store)(nil)

// Publish makes c known to every instance for as long as c lives.
func (s *Store) Publish(ctx context.Context, c *limiter.Change) error {
	level, err := levelOf(s.config.Consistency.Write)
	if err != nil {
		return err
	}
	ttl := whole(min(c.TTL, longestChange))
	err = exec(s.session.Query(changesInsert, int64(bucketOf(c.ID.Instant())), gocql.UUID(c.ID), string(c.Kind), c.Key.Bytes(),
		int64(c.Until), c.Strikes, ttl).WithContext(ctx).Consistency(level))
	if err != nil {
		return unavailable("publishing", err)
	}
	return nil
}

// Changes returns what was published since an instant and still lives.
func (s *Store) Changes(ctx context.Context, since limiter.Instant) ([]limiter.Change, error) {
	level, err := levelOf(s.config.Consistency.Read)
	if err != nil {
		return nil, err
	}
	now := limiter.InstantOf(s.config.Now())
	since = max(since, now.Add(-longestChange))
	var changes []limiter.Change
	var buckets []int64
	for bucket, last := bucketOf(since), bucketOf(now.Add(changesAhead)); bucket <= last; bucket += changeBucket {
		buckets = append(buckets, int64(bucket))
		if len(buckets) < changeBuckets && bucket < last {
			continue
		}
		if changes, err = s.appendChanges(ctx, level, changes, buckets, since); err != nil {
			return nil, unavailable("reading changes", err)
		}
		buckets = buckets[:0]
	}
	return changes, nil
}

// appendChanges appends to changes those of some partitions.
func (s *Store) appendChanges(
	ctx context.Context, level gocql.Consistency, changes []limiter.Change, buckets []int64, since limiter.Instant,
) ([]limiter.Change, error) {
	query := s.session.Query(changesSince, buckets, int64(since)).WithContext(ctx).Consistency(level).PageSize(changeRows)
	rows := s.repeated(query).Iter()
	var id gocql.UUID
	var kind string
	var key []byte
	var until int64
	var strikes int
	var sum [limiter.KeySize]byte
	for rows.Scan(&id, &kind, &key, &until, &strikes) {
		if len(key) != copy(sum[:], key) || len(key) != len(sum) {
			continue // of a later version, whose keys are others
		}
		changes = append(changes, limiter.Change{
			ID: limiter.EventID(id), Kind: limiter.ChangeKind(kind), Key: limiter.KeyFrom(sum),
			Until: limiter.Instant(until), Strikes: strikes,
		})
	}
	return changes, rows.Close()
}

// bucketOf returns the start of the hour that i is in.
func bucketOf(i limiter.Instant) limiter.Instant { return i - i%changeBucket }
