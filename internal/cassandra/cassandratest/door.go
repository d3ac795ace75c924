package cassandratest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A Door is a proxy to the shared Cassandra with an address of its own. It is shut at first: nothing listens at
// the address. The keyspaces and tables behind it are those of Hosts.
type Door struct {
	t       testing.TB
	addr    string // of the door
	node    string // behind it
	mu      sync.Mutex
	open    net.Listener // nil: it is shut
	conns   []net.Conn
	copying sync.WaitGroup
	came    chan struct{} // holds a token after a connection
}

// NewDoor returns a shut door, which is closed when the test ends.
func NewDoor(t testing.TB) *Door {
	t.Helper()
	node := Hosts(t)[0]
	host, _, err := net.SplitHostPort(node)
	if err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", net.JoinHostPort(host, "0")) // drivers then use the node's own address, with the door's port
	if err != nil {
		t.Skipf("this test needs a Cassandra on an address of this machine: %v", err)
	}
	d := &Door{t: t, addr: free.Addr().String(), node: node, came: make(chan struct{}, 1)}
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Shut)
	return d
}

// Addr returns the address to connect to, host:port.
func (d *Door) Addr() string { return d.addr }

// Open forwards connections from now on.
func (d *Door) Open() { d.t.Helper(); d.listen(d.pass) }

// Stall accepts connections from now on without forwarding or answering, like a frozen node.
func (d *Door) Stall() { d.t.Helper(); d.listen(func(net.Conn) {}) }

// Came returns a channel that gets a token at each connection, unless it holds one.
func (d *Door) Came() <-chan struct{} { return d.came }

// Shut ends all connections, and refuses new ones.
func (d *Door) Shut() {
	d.mu.Lock()
	if d.open != nil {
		_ = d.open.Close()
		d.open = nil
	}
	for _, conn := range d.conns {
		_ = conn.Close()
	}
	d.conns = nil
	d.mu.Unlock()
	d.copying.Wait()
}

func (d *Door) listen(serve func(net.Conn)) {
	d.t.Helper()
	d.Shut()
	listener, err := net.Listen("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	d.open = listener
	d.mu.Unlock()
	d.copying.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if d.keep(listener, conn) {
				serve(conn)
			}
		}
	})
}

// keep makes conn end when the door is shut, or at once if it already is.
func (d *Door) keep(by net.Listener, conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != by {
		_ = conn.Close()
		return false
	}
	d.conns = append(d.conns, conn)
	select {
	case d.came <- struct{}{}:
	default:
	}
	return true
}

func (d *Door) pass(conn net.Conn) {
	node, err := net.Dial("tcp", d.node)
	if err != nil {
		_ = conn.Close()
		return
	}
	d.mu.Lock()
	d.conns = append(d.conns, node)
	d.mu.Unlock()
	for _, way := range [][2]net.Conn{{conn, node}, {node, conn}} {
		d.copying.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // until either end is closed; then both are
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
}
