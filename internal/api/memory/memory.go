// Package memory bounds the memory of the bodies of requests and of their answers, also while clients send and read
// slowly.
//
// It knows the memory of calls and answers, but not how they are read and written.
package memory

import (
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

const (
	// most is the maximum, in bytes, for all requests in progress: their bodies, decisions and answers, without the first
	// FreeBody and FreeAnswer of each. The largest batch, of 1000 calls with 16 demands under policies of 16 limits, takes
	// 100 MiB; one of 64 takes under a limit each takes an eighth of one MiB.
	most = 512 << 20
	// FreeBody is the number of bytes of every body that are always available. Calls of one demand are shorter, so that
	// large bodies of others never keep them out. The bound of connections limits their number.
	FreeBody = 4 << 10
	// FreeAnswer is the number of bytes of every answer that are always available. The answer to one demand under a policy
	// of policy.MaxLimits is shorter.
	FreeAnswer = 12 << 10
)

// Pool counts the bytes of bodies and answers beyond the free part of each. Make one with NewPool.
type Pool struct {
	taken  atomic.Int64
	policy func(name string) (*policy.Policy, bool)
}

// NewPool returns an empty pool. policy returns the policy in force with a name.
func NewPool(policy func(name string) (*policy.Policy, bool)) *Pool { return &Pool{policy: policy} }

// Taken returns the number of bytes in use.
func (p *Pool) Taken() int64 { return p.taken.Load() }

// Left returns the number of bytes that are free.
func (p *Pool) Left() int64 { return most - p.Taken() }

// giveBack undoes a take of n.
func (p *Pool) giveBack(n int64) { p.taken.Add(-n) }

// take takes n bytes if there is room for them, and reports whether there is.
func (p *Pool) take(n int64) bool {
	if p.taken.Add(n) <= most {
		return true
	}
	p.giveBack(n)
	return false
}

// Share is the part of a pool that a request uses. The zero value has no pool, and no bound. It is not safe for
// concurrent use.
type Share struct {
	pool     *Pool
	charged  int64
	reserved int64 // of that, for an answer that is not made yet
}

// Share returns an empty share of p.
func (p *Pool) Share() Share { return Share{pool: p} }

// Empty reports whether nothing is charged.
func (s *Share) Empty() bool { return s.charged == 0 }

// Reserved returns the bytes that Reserve reserved, 0 if it did not.
func (s *Share) Reserved() int64 { return s.reserved }

// Charge charges a body of this size until Release, if there is room for it, and reports whether there is.
func (s *Share) Charge(body int) bool { return s.charge(int64(body)) }

func (s *Share) charge(size int64) bool {
	more := size - FreeBody - s.charged
	if more <= 0 || s.pool == nil {
		return true
	}
	if !s.pool.take(more) {
		return false
	}
	s.charged += more
	return true
}

// Release gives back all that was charged.
func (s *Share) Release() {
	if s.charged > 0 {
		s.pool.giveBack(s.charged)
	}
	*s = Share{pool: s.pool}
}

// held returns the bytes to charge for a body with its answer.
func held(body int, answer int64) int64 { return int64(body) + max(0, answer-FreeAnswer) }

// Hold charges the memory of a body and of an answer, if there is room for it, and reports whether there is.
func (s *Share) Hold(body, answer int) bool { return s.charge(held(body, int64(answer))) }

// Reserve charges room for the answer to a body, and reports whether there is room. If there is not, it releases
// everything.
func (s *Share) Reserve(body int, answer int64) bool {
	if !s.charge(held(body, answer)) {
		s.Release()
		return false
	}
	s.reserved = answer
	return true
}

// Settle replaces the earlier charge by the memory of a body and its answer, until that is sent. It reports whether
// there is room for it.
func (s *Share) Settle(body, answer int) bool {
	now := held(body, int64(answer))
	if spare := s.charged - max(0, now-FreeBody); spare > 0 {
		s.pool.giveBack(spare)
		s.charged -= spare
	}
	return s.charge(now)
}
