package peer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Members is the membership that a Pool informs and follows. A cluster.Cluster implements it.
type Members interface {
	// Notice reports that another instance knows the view with this number.
	Notice(view int64)
	// Reach sets the state of the way to a member.
	Reach(id cluster.ID, how cluster.Reach)
	// Others returns the members to connect to, and a channel that is closed when they may have changed.
	Others() (others []cluster.Member, changed <-chan struct{})
}

// Pool hands calls on to the instances that own their keys. It is safe for concurrent use; make one with NewPool. It
// hands nothing on until Run is called.
type Pool struct {
	members Members
	creds   credentials.TransportCredentials
	log     *slog.Logger

	mu      sync.Mutex
	ctx     context.Context // Run's; nil: it is not running
	links   map[cluster.ID]*link
	running sync.WaitGroup // counts running links

	answered, failed, refused atomic.Int64
}

// Counts has the outcomes of calls for keys that other instances own.
type Counts struct {
	Answered int64 // calls that their owners allowed or denied
	Failed   int64 // calls without an answer, or with an error of the owner
	Refused  int64 // calls that were certainly not decided, and were repeated
}

// Counts returns the outcomes of calls so far.
func (p *Pool) Counts() Counts {
	return Counts{Answered: p.answered.Load(), Failed: p.failed.Load(), Refused: p.refused.Load()}
}

// NewPool returns a pool that connects with creds.
func NewPool(members Members, creds credentials.TransportCredentials, log *slog.Logger) *Pool {
	return &Pool{members: members, creds: creds, log: log, links: make(map[cluster.ID]*link)}
}

// retireAfter is how long the connection to a member that is no longer listed is kept, so that the last calls are answered.
const retireAfter = 2 * longestCall

// Run keeps connections to all members until ctx ends, so that this instance knows whether it reaches them before the first
// call for their keys. It returns nil.
func (p *Pool) Run(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	for ctx.Err() == nil {
		others, changed := p.members.Others()
		p.keep(others)
		select {
		case <-changed:
		case <-time.After(retireAfter):
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

// link returns the connection to member, a new one if there is none; nil if the pool is not running.
func (p *Pool) link(member cluster.Member) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.linkTo(member)
}

// linkTo is link for a caller that has locked p.
func (p *Pool) linkTo(member cluster.Member) *link {
	l := p.links[member.ID]
	if l == nil && p.ctx != nil {
		l = newLink(p, member)
		p.links[member.ID] = l
		ctx, stop := context.WithCancel(p.ctx)
		l.stop, l.wanted = stop, time.Now()
		p.running.Go(func() {
			defer stop()
			l.run(ctx)
			p.mu.Lock()
			delete(p.links, member.ID)
			p.mu.Unlock()
		})
	}
	return l
}

// keep connects to others, and ends connections to members that have not been among them for retireAfter.
func (p *Pool) keep(others []cluster.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, member := range others {
		if l := p.linkTo(member); l != nil {
			l.wanted = now
		}
	}
	for _, l := range p.links {
		if now.Sub(l.wanted) > retireAfter {
			l.stop()
		}
	}
}

var errGone = fmt.Errorf("%w: %w: the owner of the key can't be reached", store.ErrUnavailable, store.ErrNotStored)
