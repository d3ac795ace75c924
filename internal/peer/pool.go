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

// Members knows which views there are. A cluster.Cluster is one.
type Members interface {
	// Notice says that somebody knows the view of that number.
	Notice(view int64)
	// Reach notes how a member is reached from now on.
	Reach(id cluster.ID, how cluster.Reach)
	// Others returns the members that are to be reached, and what is closed when they may be others.
	Others() (others []cluster.Member, changed <-chan struct{})
}

// Pool hands calls on to the instances that own their keys. It is safe for concurrent use; make
// one with NewPool. Nothing is handed on until Run is called.
type Pool struct {
	members Members
	creds   credentials.TransportCredentials
	log     *slog.Logger

	mu      sync.Mutex
	ctx     context.Context // Run's; nil: it is not running
	links   map[cluster.ID]*link
	running sync.WaitGroup // of links

	answered, failed, refused atomic.Int64
}

// Counts says what became of the calls for keys that other instances own.
type Counts struct {
	Answered int64 // by their owners, whatever they decided
	Failed   int64 // without an answer, or with an error of the owner's
	Refused  int64 // surely not decided, and tried again
}

// Counts returns what became of calls so far.
func (p *Pool) Counts() Counts {
	return Counts{Answered: p.answered.Load(), Failed: p.failed.Load(), Refused: p.refused.Load()}
}

// NewPool returns a pool that connects by creds.
func NewPool(members Members, creds credentials.TransportCredentials, log *slog.Logger) *Pool {
	return &Pool{members: members, creds: creds, log: log, links: make(map[cluster.ID]*link)}
}

// retireAfter is for how long the connection is kept to a member that is listed no more: the last
// calls are answered then.
const retireAfter = 2 * longestCall

// Run keeps connections to all members, so that it is known whether they are reached before anybody
// asks for their keys, until ctx ends. It returns nil.
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

// link returns the connection to member, made if there is none; nil when the pool is not running.
func (p *Pool) link(member cluster.Member) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.linkTo(member)
}

// linkTo is link for who has locked p.
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

// keep has connections to others, and ends those to members that have long not been among them.
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
