package members

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

// Requests to the tables of members. Cells change only by compare-and-set. The plain read of a member's row is the fence of
// each of its trips. Heartbeats are plain rows that expire.
const (
	memberRead   = "SELECT version, value FROM members WHERE namespace = ? AND scope = ? AND name = ?"
	memberInsert = "INSERT INTO members (namespace, scope, name, version, value) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
	memberChange = "UPDATE members SET version = ?, value = ? WHERE namespace = ? AND scope = ? AND name = ? IF version = ?"

	heartbeatInsert = "INSERT INTO beats (namespace, scope, id, value) VALUES (?, ?, ?, ?) USING TTL ?"
	heartbeatsRead  = "SELECT value FROM beats WHERE namespace = ? AND scope = ?"
)

// Cluster has the parts of a connected cluster that requests need.
type Cluster struct {
	Session    *gocql.Session
	Config     *conn.Config
	Datacenter string // the local data centre
}

// Reach returns the cluster, or an error if it has not been reached yet.
type Reach func() (*Cluster, error)

// Members keeps the members and views of the instances that decide together within one data centre. So its levels don't
// depend on policies: they are LOCAL_SERIAL, and LOCAL_QUORUM for commits and reads.
type Members struct {
	reach     Reach
	namespace string
}

var _ cluster.Store = (*Members)(nil)

// New returns the store of the members of namespace that decide within the cluster's data centre.
func New(namespace string, reach Reach) *Members { return &Members{reach: reach, namespace: namespace} }

// Get returns the cell of name, by a serial read if latest is true.
func (m *Members) Get(ctx context.Context, name string, latest bool) (cluster.Cell, error) {
	c, err := m.reach()
	if err != nil {
		return cluster.Cell{}, err
	}
	var version gocql.UUID
	var value string
	err = c.Config.Repeatable(m.reading(c, name, latest).WithContext(ctx)).Scan(&version, &value)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return cluster.Cell{}, nil
	case err != nil:
		return cluster.Cell{}, conn.Unavailable("reading members", err)
	}
	return cluster.Cell{Value: []byte(value), Version: cluster.Version(version)}, nil
}

// Set sets the value of name if its version is still have. The driver sends it once: after an attempt without an
// answer, the caller must find out whether it was stored.
func (m *Members) Set(ctx context.Context, name string, have cluster.Version, value []byte) (cluster.Version, error) {
	c, err := m.reach()
	if err != nil {
		return cluster.Version{}, err
	}
	version, err := gocql.RandomUUID()
	if err != nil {
		return cluster.Version{}, err
	}
	applied, err := m.changing(c, name, have, version, value).WithContext(ctx).MapScanCAS(make(map[string]any))
	switch {
	case err != nil:
		return cluster.Version{}, conn.Unavailable("changing members", err)
	case !applied:
		return cluster.Version{}, fmt.Errorf("changing members: %w", cluster.ErrConflict)
	}
	return cluster.Version(version), nil
}

// changing returns the query that sets the value and version of name if its version is still have.
func (m *Members) changing(c *Cluster, name string, have cluster.Version, version gocql.UUID, value []byte) *gocql.Query {
	query := c.Session.Query(memberChange, version, string(value), m.namespace, c.Datacenter, name, gocql.UUID(have))
	if have == (cluster.Version{}) {
		query = c.Session.Query(memberInsert, m.namespace, c.Datacenter, name, version, string(value))
	}
	return query.Consistency(gocql.LocalQuorum).SerialConsistency(gocql.LocalSerial).RetryPolicy(nil)
}

// reading returns the query that reads name, serially if latest is true.
func (m *Members) reading(c *Cluster, name string, latest bool) *gocql.Query {
	level := gocql.LocalQuorum
	if latest {
		level = gocql.Consistency(gocql.LocalSerial)
	}
	return c.Session.Query(memberRead, m.namespace, c.Datacenter, name).Consistency(level)
}

// Heartbeat stores b for cluster.HeartbeatTTL.
func (m *Members) Heartbeat(ctx context.Context, b cluster.Heartbeat) error {
	c, err := m.reach()
	if err != nil {
		return err
	}
	value, err := json.Marshal(b)
	if err != nil {
		return err
	}
	query := c.Session.Query(heartbeatInsert, m.namespace, c.Datacenter, string(b.ID), string(value), int(cluster.HeartbeatTTL/time.Second))
	if err := c.Config.Repeatable(query.WithContext(ctx).Consistency(gocql.LocalQuorum)).Exec(); err != nil {
		return conn.Unavailable("sending a heartbeat", err)
	}
	return nil
}

// Heartbeats returns the latest heartbeat of each member that is alive.
func (m *Members) Heartbeats(ctx context.Context) ([]cluster.Heartbeat, error) {
	c, err := m.reach()
	if err != nil {
		return nil, err
	}
	query := c.Session.Query(heartbeatsRead, m.namespace, c.Datacenter).WithContext(ctx).Consistency(gocql.LocalQuorum)
	rows := c.Config.Repeatable(query).Iter()
	var all []cluster.Heartbeat
	var value string
	for rows.Scan(&value) {
		var b cluster.Heartbeat
		if json.Unmarshal([]byte(value), &b) == nil { // otherwise it is of a later version
			all = append(all, b)
		}
	}
	if err := rows.Close(); err != nil {
		return nil, conn.Unavailable("reading heartbeats", err)
	}
	return all, nil
}
