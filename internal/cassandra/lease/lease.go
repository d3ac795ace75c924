// Package lease lets one process at a time do a task, by rows that expire in a table of Cassandra. A process that dies
// loses its lease after the time to live.
//
// It does not know the tasks.
package lease

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"
)

// Requests to the table of leases are compare-and-set, so that at most one process holds each. A lease ends by itself
// after its time to live.
const (
	readHolder = "SELECT holder FROM leases WHERE name = ?" // plain: waiting processes must not contend
	take       = "INSERT INTO leases (name, holder) VALUES (?, ?) IF NOT EXISTS USING TTL ?"
	renew      = "UPDATE leases USING TTL ? SET holder = ? WHERE name = ? IF holder = ?"
	release    = "DELETE FROM leases WHERE name = ? IF holder = ?"
)

// Take takes or renews the lease for holder and reports whether holder has it.
func Take(
	ctx context.Context, session *gocql.Session, name, holder string, ttl time.Duration, level gocql.SerialConsistency,
) (bool, error) {
	var by string
	err := session.Query(readHolder, name).WithContext(ctx).Consistency(gocql.Quorum).Scan(&by)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) || by != "" && by != holder {
		return false, err
	}
	had := make(map[string]any)
	if by == holder {
		return session.Query(renew, int(ttl/time.Second), holder, name, holder).WithContext(ctx).
			Consistency(gocql.Quorum).SerialConsistency(level).MapScanCAS(had)
	}
	return session.Query(take, name, holder, int(ttl/time.Second)).WithContext(ctx).
		Consistency(gocql.Quorum).SerialConsistency(level).MapScanCAS(had)
}

// releaseTries is the number of attempts at a release, which can lose against processes that try to take the lease at
// the same time.
const releaseTries = 3

// releaseWithin bounds them, as this process is about to end.
const releaseWithin = time.Second

// Release lets others take the lease at once, also if ctx has ended. If it fails, they wait until the lease ends.
func Release(ctx context.Context, session *gocql.Session, name, holder string, level gocql.SerialConsistency) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	for range releaseTries {
		had := make(map[string]any)
		_, err := session.Query(release, name, holder).WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(level).MapScanCAS(had)
		if err == nil {
			return
		}
	}
}
