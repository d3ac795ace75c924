//go:build unix

package faults

import (
	"errors"
	"io"
	"net"
	"sync"
)

// wire forwards the connections of other processes to the one at its end. It can be cut and stalled while
// all of them reach Cassandra. Make one with newWire.
type wire struct {
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	end   string // the address to which it forwards
	isCut bool
	conns map[net.Conn]bool // both ends of all connections
	pass  sync.RWMutex      // locked for writing while the wire is stalled
}

func newWire() (*wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &wire{listener: listener, conns: make(map[net.Conn]bool)}
	w.running.Go(w.accept)
	return w, nil
}

// address returns the address to which others connect.
func (w *wire) address() string { return w.listener.Addr().String() }

// leadTo forwards later connections to an address.
func (w *wire) leadTo(address string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = address
}

// cut closes all connections, and each new one at once.
func (w *wire) cut() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for conn := range w.conns {
		_ = conn.Close()
	}
	return nil
}

// mend accepts connections again.
func (w *wire) mend() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
	return nil
}

// hold stalls all connections without closing them.
func (w *wire) hold() error {
	w.pass.Lock()
	return nil
}

// release ends the stall.
func (w *wire) release() error {
	w.pass.Unlock()
	return nil
}

// close closes the wire and its connections.
func (w *wire) close() error {
	err := errors.Join(w.listener.Close(), w.cut())
	w.running.Wait()
	return err
}

func (w *wire) accept() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.running.Go(func() { w.connect(from) })
	}
}

// connect copies between both sides until one ends.
func (w *wire) connect(from net.Conn) {
	w.mu.Lock()
	end := w.end
	w.mu.Unlock()
	to, err := net.Dial("tcp", end)
	if err != nil {
		_ = from.Close()
		return
	}
	if !w.keep(from, to) {
		return
	}
	var other sync.WaitGroup
	other.Go(func() { w.copy(from, to) })
	w.copy(to, from)
	other.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, from)
	delete(w.conns, to)
}

// keep remembers conns, or closes them if the wire is cut.
func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range conns {
		if w.isCut {
			_ = conn.Close()
		} else {
			w.conns[conn] = true
		}
	}
	return !w.isCut
}

// copy copies from one to the other, and closes both when either ends.
func (w *wire) copy(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.pass.RLock() // waits while the wire is stalled
		_, failed := to.Write(buffer[:n])
		w.pass.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}
