package cluster

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Cluster is this instance's membership in the group of instances that decide together. It is safe for concurrent use;
// make one with New.
type Cluster struct {
	store       Store
	opts        Options
	routes      atomic.Pointer[routes]
	kick        chan struct{} // holds a token if there is a reason to read the view at once
	ways        ways
	aside       aside
	inbox       inbox
	setOut      atomic.Int64
	unread      atomic.Int64
	asides      atomic.Int64
	memberships atomic.Int64

	handedOver, handedInVain atomic.Int64

	busyFor, quietFor time.Duration // constants but in tests
}

// Options of a Cluster. The zero value is for an instance that others can't reach.
type Options struct {
	Address string       // host:port at which other members reach this instance; empty: they can't
	Logger  *slog.Logger // gets a line for each change of the deciding members; nil: no log

	// StandAside reports whether this instance may not decide now; nil: it may. If there are other members, it then
	// leaves, hands on calls, and comes back when it may decide.
	StandAside func() bool
	Flush      func(ctx context.Context) // writes admitted units that are not written yet; nil: there are none

	// Unload writes the units that this instance has only in memory, in slots for which moves returns true. Until the next
	// call, no further units of these slots are kept only in memory; a nil moves means that no slot moves. Unload returns
	// once all are written, however long that takes. MayUnload reports whether there are such units, or may be soon. Both
	// are nil if there never are.
	Unload    func(ctx context.Context, moves func(slot int) bool) error
	MayUnload func() bool

	Load   func() Load // returns the share of its resources that this instance uses; nil: none
	AllOwn bool        // all members own slots, even under a small load

	HandOver    HandOver    // nil: the next owner of a slot must find out which keys are counted
	LookThrough LookThrough // nil: a key set is incomplete until windows have ended
}

// New returns a cluster that keeps its members in store. A nil opts means the zero Options. This instance does not
// decide until Run has joined.
func New(store Store, opts *Options) *Cluster {
	if opts == nil {
		opts = &Options{}
	}
	c := &Cluster{
		store: store, opts: *opts, kick: make(chan struct{}, 1), ways: ways{changed: make(chan struct{}, 1)},
		busyFor: busyFor, quietFor: quietFor,
	}
	if c.opts.Logger == nil {
		c.opts.Logger = slog.New(slog.DiscardHandler)
	}
	c.routes.Store(&routes{changed: make(chan struct{})})
	return c
}

// Pauses before an instance that was set out joins again. Each is twice the one before, so that an unreliable instance
// does not keep the others busy.
const (
	minRejoin    = 50 * time.Millisecond
	maxRejoin    = time.Minute
	rejoinForget = 2 * time.Minute // the length of a membership after which the next pause is the shortest again
)

// Run keeps this instance a member until ctx ends: it joins, follows the views, and joins again under another id
// whenever it was set out. When ctx ends it leaves, within leaveWithin. It returns nil, or an error that wraps
// ErrAddressTaken.
func (c *Cluster) Run(ctx context.Context) error {
	pause := minRejoin
	for {
		began := time.Now()
		err := c.runMembership(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrAddressTaken) {
			return err
		}
		if errors.Is(err, errAside) {
			c.asides.Add(1)
			c.opts.Logger.Warn("this instance leaves, and hands on calls", "error", err)
			continue
		}
		if time.Since(began) > rejoinForget {
			pause = minRejoin
		}
		c.setOut.Add(1)
		if errors.Is(err, errUnread) {
			c.unread.Add(1)
		}
		c.opts.Logger.Warn("no longer a member: this instance joins anew", "error", err, "pause", pause)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, maxRejoin)
	}
}

// ErrAddressTaken means that this instance started with the address of another living one: calls for one would reach
// the other.
var ErrAddressTaken = errors.New("another living instance has this address: give each instance its own, no load balancer's")

// runMembership runs one membership. It returns the reason for its end.
func (c *Cluster) runMembership(ctx context.Context) error {
	s := newMembership(c)
	s.first = c.memberships.Add(1) == 1
	lasting := context.WithoutCancel(ctx)
	beating, stop := context.WithCancel(lasting)
	s.lasting = beating
	var beats sync.WaitGroup
	beats.Go(func() { s.heartbeats.run(beating) })
	err := s.followUntil(ctx)
	ended := s.endAll()
	c.put(&routes{left: ctx.Err() != nil})
	left := s.leave(lasting)
	s.stopUnloading()
	stop() // only now, as others set out a member whose heartbeats end while its row says in
	beats.Wait()
	if left {
		s.heartbeats.beat(lasting, true)
	}
	s.handOverLast(lasting, ended)
	return err
}

// put replaces the routes by r.
func (c *Cluster) put(r *routes) {
	r.changed = make(chan struct{})
	close(c.routes.Swap(r).changed)
}

// Notice reports that another instance knows the view with this number. If this instance does not, it reads the view.
func (c *Cluster) Notice(view int64) {
	if view > c.routes.Load().view.Number {
		c.look()
	}
}

// look makes the membership read the view without delay.
func (c *Cluster) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// ErrMoved means that a call was handed on to an instance that does not decide for its key.
var ErrMoved = errors.New("another instance decides for the key")

// Self returns the id of this instance's present membership, empty if it has none.
func (c *Cluster) Self() ID {
	if s := c.routes.Load().membership; s != nil {
		return s.self.ID
	}
	return ""
}

// Known returns the number of the latest view that this instance knows, 0 if it knows none.
func (c *Cluster) Known() int64 { return c.routes.Load().view.Number }

// Status is the state of a cluster as one instance knows it.
type Status struct {
	Self      ID    // empty if this instance is no member
	View      View  // the latest view that it knows
	Installed bool  // the view is in force
	Owned     int   // slots for which it decides; all of them in mode Shared
	Complete  int   // owned slots of which it knows all keys
	SetOut    int64 // how often this instance was set out, or lost its view, and joined again
	Unread    int64 // how often SetOut grew because its own row could not be read or written
	Asides    int64 // how often it left because it might not decide

	Unreached                []Member // other members of the view that have an address, and that this instance does not reach
	HandedOver, HandedInVain int64    // slots whose key sets it handed over, and failed to hand over
}

// Status returns the state of the cluster as this instance knows it.
func (c *Cluster) Status() Status {
	r := c.routes.Load()
	st := Status{
		View: r.view, Self: c.Self(), SetOut: c.setOut.Load(), Unread: c.unread.Load(), Asides: c.asides.Load(),
		Unreached:  c.unreached(r),
		HandedOver: c.handedOver.Load(), HandedInVain: c.handedInVain.Load(),
	}
	if r.membership == nil {
		return st
	}
	st.Installed = r.installed
	if r.all != nil {
		st.Owned = Slots
		return st
	}
	for _, t := range r.terms {
		if t != nil && !t.closed.Load() {
			st.Owned++
			if t.isComplete() {
				st.Complete++
			}
		}
	}
	return st
}

// Shares returns the number of slots that each of v's members owns, in their order.
func (v *View) Shares() []int {
	shares := make([]int, len(v.Members))
	for _, i := range v.owners() {
		if i >= 0 {
			shares[i]++
		}
	}
	return shares
}
