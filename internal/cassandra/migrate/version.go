package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/schema"
)

// schemaVersion returns the version of the tables and the oldest binary that can serve from them; zeros for an empty
// keyspace.
func schemaVersion(ctx context.Context, config *conn.Config, session *gocql.Session) (version, oldestReader int, err error) {
	query := session.Query("SELECT version, oldest_reader FROM schema_version WHERE name = 'tables'")
	err = config.Repeatable(query.WithContext(ctx).Consistency(gocql.Quorum)).Scan(&version, &oldestReader)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return 0, 0, fmt.Errorf("reading the schema's version: %w", err)
	}
	return version, oldestReader, nil
}

// Check returns an error that says what to do if this binary can't serve from the tables. The error is a Mistake, unless the
// check itself failed.
func Check(ctx context.Context, config *conn.Config, session *gocql.Session) error {
	migrations, err := schema.Migrations()
	if err != nil {
		return &conn.Mistake{Err: err}
	}
	newest := migrations[len(migrations)-1].Version
	version, oldestReader, err := schemaVersion(ctx, config, session)
	switch {
	case conn.RefusedForGood(err): // there is no such table, or the user may not read it
		return conn.Mistakef("%w: run `ratelimitd migrate`, or serve with --migrate", err)
	case err != nil:
		return err
	case version < newest:
		return conn.Mistakef("the tables are at version %d, this binary needs %d: run `ratelimitd migrate`, or serve with --migrate",
			version, newest)
	case oldestReader > newest:
		return conn.Mistakef("the tables are at version %d and need a binary of version %d or later, this one is %d: upgrade it",
			version, oldestReader, newest)
	}
	return nil
}
