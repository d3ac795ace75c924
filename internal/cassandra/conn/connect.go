package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/gocql/gocql"
)

// connectWithin is how long the making of a session may take: a node that stands still costs
// connectTimeout, and one of the others is asked then.
const connectWithin = 2 * connectTimeout

// Connect starts a session, unless ctx ends first. The driver's errors don't say whom it tried,
// and are Mistakes where a node refused the user.
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

// dialer makes a session's connections. Until it is released they end with a context: the
// driver's making of a session can't be told to end.
type dialer struct {
	net.Dialer
	until context.Context

	mu       sync.Mutex
	released bool
	held     []func() bool // of each connection: has it outlive until, and reports whether it does
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
		d.held = append(d.held, context.AfterFunc(d.until, func() { _ = conn.Close() })) // who reads from it learns of it
	}
	return conn, nil
}

// release has all connections outlive the context, and reports whether they do.
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

// errNoKeyspace is of a keyspace that no node knows.
var errNoKeyspace = errors.New("there is no such keyspace")

// LocalDatacenter returns the name of the local data centre, and an error unless the keyspace is there. It
// asks on a session of its own: the one that serves has to know the data centre when it starts.
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

// FindKeyspace reports whether a node knows the keyspace: one that was cut off may not know yet
// what all others do.
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

// KeyspaceError returns what is said of a keyspace that can't be used; a nil err: that is not
// there.
func KeyspaceError(config *Config, err error) error {
	if err == nil {
		err = &Mistake{errNoKeyspace}
	}
	return fmt.Errorf("connecting to keyspace %q (has `ratelimitd migrate` been run?): %w", config.Keyspace, err)
}
