package cassandra

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Requests to the table of cells. All writes are conditional, and none has a timestamp of its own, because Cassandra orders
// conditional writes by their ballots. Plain writes would not keep that order. Each condition needs a statement of its own,
// as a missing value can't be bound.
//
// A cell is in static columns, which can be read only with a row. So it has a row of its own, cellRow, which the same
// statements write and remove, and which expires together with the cell. Earlier versions kept events in further rows, which
// all expire. cellRow has the last possible id, and reads and conditions name it, so that they walk over no other row.
//
// The condition on ends_at, which is null in cellRow, always holds. It makes Cassandra read only that row. With a condition on
// the version alone, Cassandra would search for the first row, past all rows that have expired.
const (
	cellRow  = "key = ? AND event_id = ffffffff-ffff-1fff-bf7f-7f7f7f7f7f7f"
	cellRead = "SELECT event_id, version, value FROM cells WHERE " + cellRow

	cellSet    = "UPDATE cells USING TTL ? SET version = ?, value = ?, cost = 0 WHERE " + cellRow
	cellUnset  = "DELETE version, value, cost FROM cells WHERE " + cellRow
	cellIsNone = " IF version = null AND ends_at = null"
	cellIs     = " IF version = ? AND ends_at = null"
)

// readCell returns the cell of key.
func (s *Store) readCell(ctx context.Context, level gocql.Consistency, key store.Key) (store.State, error) {
	var id, version gocql.UUID
	var value []byte
	err := s.repeated(s.session.Query(cellRead, key.Bytes()).WithContext(ctx).Consistency(level)).Scan(&id, &version, &value)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return store.State{}, conn.Unavailable("reading a cell", err)
	}
	return store.State{Cell: store.Cell{Version: store.EventID(version), Value: value}}, nil
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
	condition, args := cellStatement(w.Key.Bytes(), w.Cell)
	batch.Query(condition, args...)
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

// neverProposed reports whether a conditional write failed before any node was asked to accept it: no node could be reached,
// or too few were alive for the serial level. After an error with the level of the commit, it may have been accepted.
func neverProposed(err error) bool {
	if refused, ok := errors.AsType[*gocql.RequestErrUnavailable](err); ok {
		return refused.Consistency == conn.Levels[policy.LevelSerial] || refused.Consistency == conn.Levels[policy.LevelLocalSerial]
	}
	return errors.Is(err, gocql.ErrNoConnections)
}
