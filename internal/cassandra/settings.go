package cassandra

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/agreement"
)

// The requests to the table of settings, whose rows expire.
const (
	settingsInsert = "INSERT INTO settings (namespace, id, value) VALUES (?, ?, ?) USING TTL ?"
	settingsRead   = "SELECT value FROM settings WHERE namespace = ?"
	settingsDelete = "DELETE FROM settings WHERE namespace = ? AND id = ?"
)

// Settings keeps what the instances of a namespace say of their settings, at LOCAL_QUORUM. Those in
// other data centres see it a moment later.
type Settings struct {
	store     func() (*Store, error)
	namespace string
}

var _ agreement.Store = (*Settings)(nil)

// Settings returns where the instances of namespace publish their settings.
func (s *Store) Settings(namespace string) *Settings {
	return &Settings{store: func() (*Store, error) { return s, nil }, namespace: namespace}
}

// Settings is Store.Settings. Until the cluster is reached every request fails.
func (l *Later) Settings(namespace string) *Settings {
	return &Settings{store: l.now, namespace: namespace}
}

// Publish keeps a statement for so long, in whole seconds.
func (s *Settings) Publish(ctx context.Context, id string, statement []byte, lasts time.Duration) error {
	return s.write(ctx, "publishing settings", settingsInsert, s.namespace, id, string(statement), whole(lasts))
}

// Withdraw removes a statement.
func (s *Settings) Withdraw(ctx context.Context, id string) error {
	return s.write(ctx, "withdrawing settings", settingsDelete, s.namespace, id)
}

func (s *Settings) write(ctx context.Context, doing, cql string, args ...any) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	if err := store.exec(store.session.Query(cql, args...).WithContext(ctx).Consistency(gocql.LocalQuorum)); err != nil {
		return unavailable(doing, err)
	}
	return nil
}

// Published returns all statements.
func (s *Settings) Published(ctx context.Context) ([][]byte, error) {
	store, err := s.store()
	if err != nil {
		return nil, err
	}
	rows := store.repeated(store.session.Query(settingsRead, s.namespace).WithContext(ctx).Consistency(gocql.LocalQuorum)).Iter()
	var all [][]byte
	var value string
	for rows.Scan(&value) {
		all = append(all, []byte(value))
	}
	if err := rows.Close(); err != nil {
		return nil, unavailable("reading settings", err)
	}
	return all, nil
}
