package connections

import (
	"container/list"
	"iter"
	"net"
	"sync"
)

// Places are the places for open connections. When all are taken, the longest idle connection is may be closed for a
// new one; if none is idle, the new one gets no place. Callers hold the lock, unless a method says otherwise.
type Places struct {
	sync.Mutex
	most    int
	idle    int         // maximum of idle ones; 0: no bound
	reached func(Bound) // must not block; may be nil
	taken   int
	waiting list.List // of *Place: those of idle connections, the longest idle first
}

// Place is the place of a connection. The zero value is not taken.
type Place struct {
	conn  net.Conn // closed for a new one
	taken bool
	waits *list.Element // in waiting; nil: it is busy
}

// NewPlaces returns this many places. It calls reached, which may be nil, with each bound that turns a connection away.
func NewPlaces(most int, reached func(Bound)) *Places { return &Places{most: most, reached: reached} }

// LimitIdle sets the maximum of idle connections. Call it before Admit.
func (p *Places) LimitIdle(most int) { p.idle = most }

// Admit gives conn a place, as an idle connection, and closes another connection for it if needed. It returns false if
// there is no place. It takes the lock.
func (p *Places) Admit(place *Place, conn net.Conn) bool {
	place.conn = conn
	longest, admitted := p.enter(place)
	switch {
	case !admitted:
		p.tell(Full)
	case longest != nil:
		p.tell(Idle)
		_ = longest.Close() // its server finds out
	}
	return admitted
}

func (p *Places) tell(bound Bound) {
	if p.reached != nil {
		p.reached(bound)
	}
}

// enter takes place, and returns the connection to be closed for it, if any.
func (p *Places) enter(place *Place) (longest net.Conn, admitted bool) {
	p.Lock()
	defer p.Unlock()
	if p.taken >= p.most || p.idle > 0 && p.waiting.Len() >= p.idle {
		first := p.waiting.Front()
		if first == nil {
			return nil, false
		}
		gone := first.Value.(*Place)
		p.Leave(gone)
		longest = gone.conn
	}
	p.taken++
	place.taken = true
	p.Wait(place)
	return longest, true
}

// Wait marks the connection at place as idle, if it is open.
func (p *Places) Wait(place *Place) {
	if place.taken && place.waits == nil {
		place.waits = p.waiting.PushBack(place)
	}
}

// Busy marks the connection at place as busy.
func (p *Places) Busy(place *Place) {
	if place.waits != nil {
		p.waiting.Remove(place.waits)
		place.waits = nil
	}
}

// Leave frees place for another connection.
func (p *Places) Leave(place *Place) {
	if !place.taken {
		return
	}
	p.Busy(place)
	place.taken = false
	p.taken--
}

// Taken returns how many connections are open.
func (p *Places) Taken() int { return p.taken }

// Waiting returns the number of idle connections.
func (p *Places) Waiting() int { return p.waiting.Len() }

// AllWaiting returns the idle connections, the longest idle first.
func (p *Places) AllWaiting() iter.Seq[net.Conn] {
	return func(yield func(net.Conn) bool) {
		for e := p.waiting.Front(); e != nil; e = e.Next() {
			if !yield(e.Value.(*Place).conn) {
				return
			}
		}
	}
}
