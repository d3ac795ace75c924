package cassandra

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Requests to the table of cells. All writes are parts of one conditional batch, and none has a timestamp of its own:
// Cassandra orders them by their ballots, which plain writes would not respect. Each condition is a statement of its
// own, as a missing value can't be bound.
//
// A cell is in static columns, which are read only with a row. So it has a row of its own, cellRow, which is written,
// expires and is removed with it, by one statement. Its id is the last possible one: reads must be bounded by instants,
// so as not to walk over expired rows, and such a read meets this row first.
//
// The condition on ends_at, which is null in that row, always holds. It makes Cassandra read that row alone; for the
// version alone it would search for the first row, over all that have expired.
const (
	cellRow = "key = ? AND event_id = ffffffff-ffff-1fff-bf7f-7f7f7f7f7f7f"

	cellRead      = "SELECT event_id, cost, ends_at, version, value FROM cells WHERE key = ? AND event_id > maxTimeuuid(?) LIMIT ?"
	cellReadLong  = "SELECT event_id, cost, ends_at, version FROM cells WHERE key = ? AND event_id > maxTimeuuid(?) LIMIT ?"
	cellReadAlone = "SELECT event_id, version, value FROM cells WHERE " + cellRow

	cellSet    = "UPDATE cells USING TTL ? SET version = ?, value = ?, cost = 0 WHERE " + cellRow
	cellUnset  = "DELETE version, value, cost FROM cells WHERE " + cellRow
	cellIsNone = " IF version = null AND ends_at = null"
	cellIs     = " IF version = ? AND ends_at = null"

	cellInsert = "INSERT INTO cells (key, event_id, cost, ends_at) VALUES (?, ?, ?, ?) USING TTL ?"
	cellRemove = "DELETE FROM cells WHERE key = ? AND event_id = ?"
)

// cellRowID is the id in cellRow, which no event has.
var cellRowID = gocql.UUID{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x1f, 0xff, 0xbf, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f}

const (
	// longLog is the number of rows from which on a second request pays, so that the value, of a kilobyte or so, is
	// sent once rather than with every row.
	longLog = 64
	// longLogReads is the number of attempts at that while others change the cell in between. Then the value is read
	// with every row.
	longLogReads = 3
)

// readCell returns the cell and the log beside it that q asks for, as of the same time. It reads further rows if there
// are holds in the log, like readLog.
func (s *Store) readCell(ctx context.Context, level gocql.Consistency, q *store.Query) (store.State, error) {
	key := q.Key.Bytes()
	if len(q.Logs) == 0 {
		cell, err := s.readCellAlone(ctx, level, key)
		if err != nil {
			return store.State{}, conn.Unavailable("reading a cell", err)
		}
		return store.State{Cell: cell}, nil
	}
	asked := &q.Logs[0]
	for limit, moved := max(1, asked.Max)+1, 0; ; {
		apart := limit > longLog && moved < longLogReads
		cell, events, whole, err := s.readCellRows(ctx, level, key, asked.After, limit, apart)
		switch {
		case errors.Is(err, errCellMoved):
			moved++
		case err != nil:
			return store.State{}, conn.Unavailable("reading a cell", err)
		case !whole && settledAmong(events) < asked.Max:
			limit *= 2
		default:
			slices.Reverse(events)
			return store.State{Cell: cell, Logs: []store.Log{{Events: events}}}, nil
		}
	}
}

// readCellRows returns the cell and the newest events beside it that are later than after, newest first, from at most
// limit rows; whole reports that there are no others. It reads the value apart, or with every row.
func (s *Store) readCellRows(
	ctx context.Context, level gocql.Consistency, key []byte, after store.Instant, limit int, apart bool,
) (cell store.Cell, events []store.Event, whole bool, err error) {
	var id, version gocql.UUID
	var cost, ends int64
	var value []byte
	statement, columns := cellRead, []any{&id, &cost, &ends, &version, &value}
	if apart {
		statement, columns = cellReadLong, columns[:len(columns)-1]
	}
	query := s.session.Query(statement, key, int64(after), limit).WithContext(ctx).Consistency(level)
	rows := s.repeated(query.PageSize(limit + 1)).Iter()
	read := 0
	for rows.Scan(columns...) {
		read++
		if id != cellRowID {
			events = append(events, eventOf(id, cost, ends))
		}
	}
	if err := rows.Close(); err != nil {
		return store.Cell{}, nil, false, err
	}
	cell = store.Cell{Version: store.EventID(version), Value: value}
	if apart && cell.Version != (store.EventID{}) {
		now, err := s.readCellAlone(ctx, level, key)
		switch {
		case err != nil:
			return store.Cell{}, nil, false, err
		case now.Version != cell.Version:
			return store.Cell{}, nil, false, errCellMoved
		}
		cell = now
	}
	return cell, events, read < limit, nil
}

// errCellMoved means that a cell was written between two requests that read it.
var errCellMoved = errors.New("the cell changed while it was read")

// readCellAlone returns the cell without a log.
func (s *Store) readCellAlone(ctx context.Context, level gocql.Consistency, key []byte) (store.Cell, error) {
	var id, version gocql.UUID
	var value []byte
	err := s.repeated(s.session.Query(cellReadAlone, key).WithContext(ctx).Consistency(level)).Scan(&id, &version, &value)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return store.Cell{}, err
	}
	return store.Cell{Version: store.EventID(version), Value: value}, nil
}

// writeCell makes the conditional write w. The driver sends it once: after an attempt without an answer, the caller
// must find out whether it was stored.
func (s *Store) writeCell(ctx context.Context, level gocql.Consistency, w *store.Write) error {
	serial, err := conn.SerialLevel(string(w.Cell.Serial))
	if err != nil {
		return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, store.ErrNotStored, err)
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

// cellStatement returns the statement, with its values, that applies c if its condition holds.
func cellStatement(key []byte, c *store.CellWrite) (statement string, args []any) {
	version := gocql.UUID(c.Version)
	creates, deletes := c.If == store.EventID{}, c.Version == store.EventID{}
	switch {
	case creates && deletes:
		return cellUnset + cellIsNone, []any{key}
	case deletes:
		return cellUnset + cellIs, []any{key, gocql.UUID(c.If)}
	case creates:
		return cellSet + cellIsNone, []any{whole(c.TTL), version, notNull(c.Value), key}
	}
	return cellSet + cellIs, []any{whole(c.TTL), version, notNull(c.Value), key, gocql.UUID(c.If)}
}

// notNull returns b, or an empty slice for nil, which the driver would bind as null.
func notNull(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// applyIf sends a conditional batch to the table of cells. It returns ErrConflict if the condition did not hold.
func (s *Store) applyIf(batch *gocql.Batch) error {
	var key []byte
	var id, version gocql.UUID // of the cell that does not meet the condition
	var ends int64
	applied, rows, err := s.session.ExecuteBatchCAS(batch, &key, &id, &ends, &version)
	if err == nil {
		err = rows.Close()
	}
	switch {
	case err != nil && neverProposed(err):
		return conn.Unavailable("comparing and setting", fmt.Errorf("%w: %w", store.ErrNotStored, err))
	case err != nil:
		return conn.Unavailable("comparing and setting", err)
	case !applied:
		return fmt.Errorf("comparing and setting: %w", store.ErrConflict)
	}
	return nil
}

// neverProposed reports whether a conditional write failed before any node was asked to accept it: none could be
// reached, or too few were alive for the serial level. An error with the commit's level means that it may have been
// accepted.
func neverProposed(err error) bool {
	var refused *gocql.RequestErrUnavailable
	if errors.As(err, &refused) {
		return refused.Consistency == conn.Levels[policy.LevelSerial] || refused.Consistency == conn.Levels[policy.LevelLocalSerial]
	}
	return errors.Is(err, gocql.ErrNoConnections)
}
