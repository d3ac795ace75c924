package connections

import (
	"container/list"
	"iter"
	"net"
	"sync"
)

// Places are those of the connections that are open at the same time. When all are taken, the connection that has
// waited longest for a request is closed for a new one; if none waits, there is no place for that. The lock is to be
// held wherever a method does not say otherwise.
type Places struct {
	sync.Mutex
	most    int
	idle    int         // how many may wait at the same time; 0: all of them
	reached func(Bound) // must not block; may be nil
	taken   int
	waiting list.List // of *Place: those that wait for a request, the longest first
}

// Place is that of one connection. The zero value is none.
type Place struct {
	conn  net.Conn // closed for a new one
	taken bool
	waits *list.Element // in waiting; nil: it does not wait
}

// NewPlaces returns as many as most. It calls reached, which may be nil, with each bound that turns a connection or a request away.
func NewPlaces(most int, reached func(Bound)) *Places { return &Places{most: most, reached: reached} }

// LimitIdle has at most this many connections wait for a request at the same time. It is to be called before Admit.
func (p *Places) LimitIdle(most int) { p.idle = most }

// Admit gives conn the place p, where it waits for a request, and closes another connection for it where that is
// needed. It returns false if there is no place. It takes the lock.
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

// enter takes place, and returns the connection that has to be closed for it, if any.
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

// Wait has the connection at place wait for a request, if it is open and does not wait yet.
func (p *Places) Wait(place *Place) {
	if place.taken && place.waits == nil {
		place.waits = p.waiting.PushBack(place)
	}
}

// Busy ends what Wait began: a request is under way.
func (p *Places) Busy(place *Place) {
	if place.waits != nil {
		p.waiting.Remove(place.waits)
		place.waits = nil
	}
}

// Leave has place be free for another connection.
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

// Waiting returns how many of them wait for a request.
func (p *Places) Waiting() int { return p.waiting.Len() }

// AllWaiting returns those that do, the longest first.
func (p *Places) AllWaiting() iter.Seq[net.Conn] {
	return func(yield func(net.Conn) bool) {
		for e := p.waiting.Front(); e != nil; e = e.Next() {
			if !yield(e.Value.(*Place).conn) {
				return
			}
		}
	}
}
