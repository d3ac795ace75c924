package members

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/agreement"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
)

// Requests to the table of settings, whose rows expire.
const (
	settingsInsert = "INSERT INTO settings (namespace, id, value) VALUES (?, ?, ?) USING TTL ?"
	settingsRead   = "SELECT value FROM settings WHERE namespace = ?"
	settingsDelete = "DELETE FROM settings WHERE namespace = ? AND id = ?"
)

// Settings keeps the settings that the instances of a namespace publish. It reads and writes at LOCAL_QUORUM, so instances in
// other data centres see them a moment later.
type Settings struct {
	reach     Reach
	namespace string
}

var _ agreement.Store = (*Settings)(nil)

// NewSettings returns the store in which the instances of namespace publish their settings.
func NewSettings(namespace string, reach Reach) *Settings {
	return &Settings{reach: reach, namespace: namespace}
}

// Publish stores a statement for the time lasts, which is whole seconds.
func (s *Settings) Publish(ctx context.Context, id string, statement []byte, lasts time.Duration) error {
	return s.write(ctx, "publishing settings", settingsInsert, s.namespace, id, string(statement), int(lasts/time.Second))
}

// Withdraw removes a statement.
func (s *Settings) Withdraw(ctx context.Context, id string) error {
	return s.write(ctx, "withdrawing settings", settingsDelete, s.namespace, id)
}

func (s *Settings) write(ctx context.Context, doing, cql string, args ...any) error {
	c, err := s.reach()
	if err != nil {
		return err
	}
	query := c.Session.Query(cql, args...).WithContext(ctx).Consistency(gocql.LocalQuorum)
	if err := c.Config.Repeatable(query).Exec(); err != nil {
		return conn.Unavailable(doing, err)
	}
	return nil
}

// Published returns all statements.
func (s *Settings) Published(ctx context.Context) ([][]byte, error) {
	c, err := s.reach()
	if err != nil {
		return nil, err
	}
	rows := c.Config.Repeatable(c.Session.Query(settingsRead, s.namespace).WithContext(ctx).Consistency(gocql.LocalQuorum)).Iter()
	var all [][]byte
	var value string
	for rows.Scan(&value) {
		all = append(all, []byte(value))
	}
	if err := rows.Close(); err != nil {
		return nil, conn.Unavailable("reading settings", err)
	}
	return all, nil
}
