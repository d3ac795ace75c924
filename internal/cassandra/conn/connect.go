package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/gocql/gocql"
)

// connectWithin is the timeout for making a session. A node that stands still costs connectTimeout, after which the driver
// asks another one.
const connectWithin = 2 * connectTimeout

// Connect starts a session, unless ctx ends first. It adds the hosts to the driver's errors, and makes them Mistakes if
// a node refused the user.
func Connect(ctx context.Context, cl *gocql.ClusterConfig) (*gocql.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	dial, refused := &dialer{Dialer: net.Dialer{Timeout: cl.ConnectTimeout}, until: ctx}, new(refusals)
	cl.Dialer, cl.ConnectObserver = dial, refused
	session, err := cl.CreateSession()
	if !dial.release() && err == nil {
		session.Close()
		err = fmt.Errorf("no session was made in time: %w", context.Cause(ctx))
	}
	switch refusal := refused.refusal(); {
	case err == nil:
		return session, nil
	case refusal != nil:
		return nil, Mistakef("%w (hosts %v)", refusal, cl.Hosts)
	}
	return nil, fmt.Errorf("%w (hosts %v)", err, cl.Hosts)
}

// dialer makes a session's connections. Until it is released, they end with a context, because the driver has no other way to
// stop making a session.
type dialer struct {
	net.Dialer
	until context.Context // ends the connections

	mu       sync.Mutex
	released bool
	held     []func() bool // for each connection, detaches it from until, and reports whether that was in time
}

// DialContext connects to address.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	released := d.released
	d.mu.Unlock()
	if released {
		return d.Dialer.DialContext(ctx, network, address)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.until, cancel)()
	conn, err := d.Dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.released {
		d.held = append(d.held, context.AfterFunc(d.until, func() { _ = conn.Close() })) // then reads from it fail
	}
	return conn, nil
}

// release detaches all connections from the context, and reports whether that was in time.
func (d *dialer) release() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.released = true
	all := d.until.Err() == nil
	for _, outlive := range d.held {
		all = outlive() && all
	}
	d.held = nil
	return all
}

// errNoKeyspace means that no node knows the keyspace.
var errNoKeyspace = errors.New("there is no such keyspace")

// LocalDatacenter returns the name of the local data centre, and an error unless the keyspace exists. It uses a session
// of its own, as the serving session must know the data centre when it starts.
func LocalDatacenter(ctx context.Context, config *Config) (datacenter string, err error) {
	cl, nodes := config.Settings("")
	session, err := Connect(ctx, cl)
	if err != nil {
		return "", fmt.Errorf("connecting to Cassandra: %w", err)
	}
	defer session.Close()
	if datacenter, err = nodes.Topology().Local(config.Datacenter, config.UsesLocalLevels); err != nil {
		return "", err
	}
	if found, err := FindKeyspace(ctx, config, session, nodes); err != nil || !found {
		return "", KeyspaceError(config, err)
	}
	return datacenter, nil
}

// FindKeyspace reports whether any node knows the keyspace. It may ask all nodes, as one that was cut off may not know it yet.
func FindKeyspace(ctx context.Context, config *Config, session *gocql.Session, nodes *Nodes) (found bool, err error) {
	var name string
	query := func(ctx context.Context) error {
		return config.Repeatable(session.Query("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", config.Keyspace).
			WithContext(ctx).Consistency(gocql.One)).Scan(&name)
	}
	err = query(ctx)
	for _, host := range nodes.Hosts() {
		if !errors.Is(err, gocql.ErrNotFound) {
			break
		}
		if query(Pinned(ctx, host)) == nil {
			return true, nil
		}
	}
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return false, fmt.Errorf("looking for keyspace %q: %w", config.Keyspace, err)
	}
	return err == nil, nil
}

// KeyspaceError returns the error of a keyspace that can't be used; a nil err means that it does not exist.
func KeyspaceError(config *Config, err error) error {
	if err == nil {
		err = &Mistake{errNoKeyspace}
	}
	return fmt.Errorf("connecting to keyspace %q (has `ratelimitd migrate` been run?): %w", config.Keyspace, err)
}
