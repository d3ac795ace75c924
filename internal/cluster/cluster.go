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

// Cluster is this instance's place among those that decide together. It is safe for
// concurrent use; make one with New.
type Cluster struct {
	store  Store
	opts   Options
	routes atomic.Pointer[routes]
	kick   chan struct{} // holds a token when there is reason to look at the view at once
	ways   ways
	aside  aside
	inbox  inbox
	setOut atomic.Int64
	unread atomic.Int64
	asides atomic.Int64
	seats  atomic.Int64

	handedOver, handedInVain atomic.Int64

	busyFor, quietFor time.Duration // constants but in tests
}

// Options of a Cluster. The zero value is of an instance that others can't reach.
type Options struct {
	Address string       // where others reach this instance, host:port; empty: nowhere
	Logger  *slog.Logger // of one line for every change of who decides; nil: nobody is told

	// StandAside reports whether this instance may not decide now; nil: it may. Among others it leaves then, hands
	// on calls, and comes back when it may.
	StandAside func() bool
	Flush      func(ctx context.Context) // writes what was admitted and is not written yet; nil: all is

	Load   func() Load // how much of what it has this instance uses; nil: nothing
	AllOwn bool        // all members are to own slices, however little there is to do

	HandOver    HandOver    // nil: the next owner of a slice has to find out what is counted in it
	LookThrough LookThrough // nil: until windows are over
}

// New returns a cluster that keeps its members in store. A nil opts means the zero Options.
// Nobody decides until Run has joined.
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

// Pauses before an instance that was set out joins anew. Each is twice the one before, so that
// an instance which others can't go by does not keep them busy.
const (
	minRejoin    = 50 * time.Millisecond
	maxRejoin    = time.Minute
	rejoinForget = 2 * time.Minute // of membership, after which the next pause is the shortest again
)

// Run is a member until ctx ends: it joins, does what the views say, and joins anew under
// another id whenever it was set out. When ctx ends it leaves, within leaveWithin. It returns nil, or an error that
// wraps ErrAddressTaken.
func (c *Cluster) Run(ctx context.Context) error {
	pause := minRejoin
	for {
		began := time.Now()
		err := c.sit(ctx)
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

// ErrAddressTaken is an instance that starts with the address of another one that lives: calls for either would reach
// whichever is there.
var ErrAddressTaken = errors.New("another living instance has this address: give each instance its own, no load balancer's")

// sit is one membership. It returns why that ended.
func (c *Cluster) sit(ctx context.Context) error {
	s := newSeat(c)
	s.first = c.seats.Add(1) == 1
	lasting := context.WithoutCancel(ctx)
	beating, stop := context.WithCancel(lasting)
	s.lasting = beating
	var beats sync.WaitGroup
	beats.Go(func() { s.pulse.run(beating) })
	err := s.tendUntil(ctx)
	ended := s.endAll()
	c.put(&routes{left: ctx.Err() != nil})
	left := s.leave(lasting)
	stop() // not before: who falls silent while its row still says in is set out
	beats.Wait()
	if left {
		s.pulse.beat(lasting, true)
	}
	s.handOverLast(lasting, ended)
	return err
}

// put puts r in place.
func (c *Cluster) put(r *routes) {
	r.changed = make(chan struct{})
	close(c.routes.Swap(r).changed)
}

// Notice says that somebody knows the view of that number. If this instance does not, it looks.
func (c *Cluster) Notice(view int64) {
	if view > c.routes.Load().view.Number {
		c.look()
	}
}

// look has the view looked at without delay.
func (c *Cluster) look() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// ErrMoved is a call that was handed to an instance which does not decide for its key.
var ErrMoved = errors.New("another instance decides for the key")

// Self returns the id of this instance's present membership, empty while it has none.
func (c *Cluster) Self() ID {
	if s := c.routes.Load().seat; s != nil {
		return s.self.ID
	}
	return ""
}

// Known returns the number of the latest view that this instance knows; 0: none.
func (c *Cluster) Known() int64 { return c.routes.Load().view.Number }

// Status is what a cluster looks like from one member.
type Status struct {
	Self      ID    // empty: this instance is no member
	View      View  // the latest one that it knows
	Installed bool  // it is in force
	Owned     int   // slices that it decides for; all of them in mode Shared
	Complete  int   // of these, slices of which it knows all keys
	SetOut    int64 // how often this instance was set out, or lost its view, and joined anew
	Unread    int64 // of these, how often as its own row could not be read or written
	Asides    int64 // how often it left as it might not decide

	Unreached                []Member // of the view, that this instance would hand calls on to and does not reach
	HandedOver, HandedInVain int64    // slices of which it told the next owner what it knew, and tried to
}

// Status returns what this instance knows.
func (c *Cluster) Status() Status {
	r := c.routes.Load()
	st := Status{
		View: r.view, Self: c.Self(), SetOut: c.setOut.Load(), Unread: c.unread.Load(), Asides: c.asides.Load(),
		Unreached:  c.unreached(r),
		HandedOver: c.handedOver.Load(), HandedInVain: c.handedInVain.Load(),
	}
	if r.seat == nil {
		return st
	}
	st.Installed = r.installed
	if r.all != nil {
		st.Owned = Slices
		return st
	}
	for _, t := range r.tenures {
		if t != nil && !t.closed.Load() {
			st.Owned++
			if t.isComplete() {
				st.Complete++
			}
		}
	}
	return st
}

// Shares returns how many slices each of v's members owns, in their order.
func (v *View) Shares() []int {
	shares := make([]int, len(v.Members))
	for _, i := range v.owners() {
		if i >= 0 {
			shares[i]++
		}
	}
	return shares
}
