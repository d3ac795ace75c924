package cassandra

import (
	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/policies"
)

// Policies returns the store of versions of the policies of namespace. Every request fails until the cluster is
// reached.
func (l *Later) Policies(namespace string) *policies.Store {
	return policies.New(namespace, func() (*gocql.Session, *conn.Config, error) {
		s, err := l.now()
		if err != nil {
			return nil, nil, err
		}
		return s.session, &s.config, nil
	})
}
