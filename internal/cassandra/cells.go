package cassandra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// The requests to the table of cells. All writes are parts of one conditional batch,
// and none carries a time of its own: Cassandra orders them by their ballots, which
// plain writes would not respect. Each condition is a statement of its own, for what
// doesn't exist is not a value that could be bound.
//
// A read has no bound on the ids, or the cell of a partition without events in that
// range would not be returned. What is too old is left out here. Static columns come
// with every row, a value of a kilobyte or so too: long logs are read without it.
const (
	cellRead      = "SELECT event_id, cost, ends_at, version, value FROM cells WHERE key = ? LIMIT ?"
	cellReadLong  = "SELECT event_id, cost, ends_at, version FROM cells WHERE key = ? LIMIT ?"
	cellReadValue = "SELECT version, value FROM cells WHERE key = ? LIMIT 1"

	cellCreate = "UPDATE cells USING TTL ? SET version = ?, value = ? WHERE key = ? IF version = null"
	cellChange = "UPDATE cells USING TTL ? SET version = ?, value = ? WHERE key = ? IF version = ?"
	cellDelete = "DELETE version, value FROM cells WHERE key = ? IF version = ?"
	cellAbsent = "DELETE version, value FROM cells WHERE key = ? IF version = null"

	cellInsert = "INSERT INTO cells (key, event_id, cost, ends_at) VALUES (?, ?, ?, ?) USING TTL ?"
	cellRemove = "DELETE FROM cells WHERE key = ? AND event_id = ?"
)

// longLog is how many rows are worth a second request, so that the value comes once.
const longLog = 64

// readCell returns the cell that q asks for and the log beside it, as they were at the
// same time. It reads on where holds are in the log, like readLog.
func (s *Store) readCell(ctx context.Context, level gocql.Consistency, q *limiter.Query) (limiter.State, error) {
	asked := limiter.LogQuery{After: limiter.Distant, Max: 1} // the cell comes with every row
	if len(q.Logs) > 0 {
		asked = q.Logs[0]
	}
	key := q.Key.Bytes()
	for limit := max(1, asked.Max); ; {
		state, whole, err := s.readCellRows(ctx, level, key, asked.After, limit)
		switch {
		case errors.Is(err, errCellMoved) && ctx.Err() == nil:
		case err != nil:
			return limiter.State{}, unavailable("reading a cell", err)
		case !whole && settledAmong(state.Logs[0].Events) < asked.Max:
			limit *= 2
		default:
			slices.Reverse(state.Logs[0].Events)
			state.Logs = state.Logs[:len(q.Logs)]
			return state, nil
		}
	}
}

// readCellRows returns the cell and the newest events beside it, newest first, of as
// many rows as limit allows. It is whole if there are no others later than after.
func (s *Store) readCellRows(
	ctx context.Context, level gocql.Consistency, key []byte, after limiter.Instant, limit int,
) (state limiter.State, whole bool, err error) {
	var id, version gocql.UUID
	var cost, ends int64
	var value []byte
	statement, columns := cellRead, []any{&id, &cost, &ends, &version, &value}
	if limit > longLog {
		statement, columns = cellReadLong, columns[:len(columns)-1]
	}
	rows := s.repeated(s.session.Query(statement, key, limit).WithContext(ctx).Consistency(level).PageSize(limit + 1)).Iter()
	var events []limiter.Event
	read := 0
	for rows.Scan(columns...) {
		read++
		if e := eventOf(id, cost, ends); e.At > after && id != (gocql.UUID{}) { // a cell without events has a row without an id
			events = append(events, e)
		}
	}
	if err := rows.Close(); err != nil {
		return limiter.State{}, false, err
	}
	if limit > longLog {
		if value, err = s.readCellValue(ctx, level, key, version); err != nil {
			return limiter.State{}, false, err
		}
	}
	state.Cell = limiter.Cell{Version: limiter.EventID(version), Value: value}
	state.Logs = []limiter.Log{{Events: events}}
	return state, read < limit || len(events) < read, nil
}

// errCellMoved is a cell that was written between two requests that read it.
var errCellMoved = errors.New("the cell changed while it was read")

// readCellValue returns the value of the cell with this version.
func (s *Store) readCellValue(ctx context.Context, level gocql.Consistency, key []byte, version gocql.UUID) (value []byte, err error) {
	var now gocql.UUID
	err = s.repeated(s.session.Query(cellReadValue, key).WithContext(ctx).Consistency(level)).Scan(&now, &value)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return nil, err
	}
	if now != version {
		return nil, errCellMoved
	}
	return value, nil
}

// writeCell makes the conditional write w. The driver sends it once: what became of an
// attempt without an answer is for the caller to find out.
func (s *Store) writeCell(ctx context.Context, level gocql.Consistency, w *limiter.Write) error {
	serial, err := serialLevel(string(w.Cell.Serial))
	if err != nil {
		return fmt.Errorf("%w: %w: %w", limiter.ErrUnavailable, limiter.ErrNotStored, err)
	}
	batch := s.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx).DefaultTimestamp(false).SerialConsistency(serial).RetryPolicy(nil)
	batch.SetConsistency(level)
	key := w.Key.Bytes()
	condition, args := cellStatement(key, w.Cell)
	batch.Query(condition, args...)
	for _, e := range w.Events {
		batch.Query(cellInsert, key, gocql.UUID(e.ID), e.Cost, int64(e.Ends), whole(w.Logs[0].TTL))
	}
	for _, id := range w.Remove {
		batch.Query(cellRemove, key, gocql.UUID(id))
	}
	return s.applyIf(batch)
}

// cellStatement returns the statement, with its values, that puts c in place if its
// condition holds.
func cellStatement(key []byte, c *limiter.CellWrite) (statement string, args []any) {
	version := gocql.UUID(c.Version)
	creates, deletes := c.If == limiter.EventID{}, c.Version == limiter.EventID{}
	switch {
	case creates && deletes:
		return cellAbsent, []any{key}
	case deletes:
		return cellDelete, []any{key, gocql.UUID(c.If)}
	case creates:
		return cellCreate, []any{whole(c.TTL), version, notNull(c.Value), key}
	}
	return cellChange, []any{whole(c.TTL), version, notNull(c.Value), key, gocql.UUID(c.If)}
}

// notNull returns b such that the driver binds no null for it.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// applyIf sends a conditional batch to cells, and says whether its condition held.
func (s *Store) applyIf(batch *gocql.Batch) error {
	var key []byte
	var id, version gocql.UUID // of a cell that is another one
	applied, rows, err := s.session.ExecuteBatchCAS(batch, &key, &id, &version)
	if err == nil {
		err = rows.Close()
	}
	switch {
	case err != nil && neverProposed(err):
		return unavailable("comparing and setting", fmt.Errorf("%w: %w", limiter.ErrNotStored, err))
	case err != nil:
		return unavailable("comparing and setting", err)
	case !applied:
		return fmt.Errorf("comparing and setting: %w", limiter.ErrConflict)
	}
	return nil
}

// neverProposed reports whether a conditional write failed before any node was asked to
// accept it: none could be reached, or too few were alive to agree on anything. That
// too few are left to commit what was accepted is the other level's error.
func neverProposed(err error) bool {
	var refused *gocql.RequestErrUnavailable
	if errors.As(err, &refused) {
		return refused.Consistency == levels[limiter.LevelSerial] || refused.Consistency == levels[limiter.LevelLocalSerial]
	}
	return errors.Is(err, gocql.ErrNoConnections)
}
