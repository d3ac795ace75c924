// Package memory bounds the memory that the bodies of requests and their answers take, also while clients send and read
// slowly.
//
// It knows how much a call and its answer take, and nothing of how they are read and written.
package memory

import (
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

const (
	// most bounds all bodies that are being read, decided or answered, and what deciding and
	// answering them takes, without the first FreeBody and FreeAnswer of each. The largest batch
	// takes 100 MiB, of 1000 calls with 16 demands under policies of 16 limits; one of 64 takes
	// under a limit each takes an eighth of one.
	most = 512 << 20
	// FreeBody is how many bytes of every body there is room for, whatever the others take: calls
	// of one demand are shorter, and large bodies of others never keep them out. How many there
	// are is bounded by the connections.
	FreeBody = 4 << 10
	// FreeAnswer is how many bytes of every answer there is room for, whatever the others take:
	// those of one demand under a policy of policy.MaxLimits are shorter.
	FreeAnswer = 12 << 10
)

// Pool counts the bytes that bodies and answers take, past the free part of each. Make one with
// NewPool.
type Pool struct {
	taken  atomic.Int64
	policy func(name string) (*policy.Policy, bool)
}

// NewPool returns a pool of which nothing is taken. policy returns the policy of a name that is in
// force.
func NewPool(policy func(name string) (*policy.Policy, bool)) *Pool { return &Pool{policy: policy} }

// Taken returns how many bytes are taken.
func (p *Pool) Taken() int64 { return p.taken.Load() }

// Left returns how many bytes are not.
func (p *Pool) Left() int64 { return most - p.Taken() }

// giveBack undoes a take of n.
func (p *Pool) giveBack(n int64) { p.taken.Add(-n) }

// take reports whether there was room for n more bytes, and takes them.
func (p *Pool) take(n int64) bool {
	if p.taken.Add(n) <= most {
		return true
	}
	p.giveBack(n)
	return false
}

// Share is the part of a pool that one request takes. The zero value is of none, and bounded by nothing. It
// is not safe for concurrent use.
type Share struct {
	pool     *Pool
	charged  int64
	reserved int64 // of that, for an answer that is not made yet
}

// Share returns a share of p that is empty.
func (p *Pool) Share() Share { return Share{pool: p} }

// Empty reports whether nothing is charged.
func (s *Share) Empty() bool { return s.charged == 0 }

// Reserved returns the bytes that Reserve reserved, 0 if it did not.
func (s *Share) Reserved() int64 { return s.reserved }

// Charge reports whether there is room for a body of so many bytes in all, and charges it until
// Release.
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

// held returns how many bytes are charged for a body with its answer.
func held(body int, answer int64) int64 { return int64(body) + max(0, answer-FreeAnswer) }

// Hold charges the memory of a body and of an answer, and reports whether there is room for it.
func (s *Share) Hold(body, answer int) bool { return s.charge(held(body, int64(answer))) }

// Reserve charges room for the answer to a body, and reports whether there is so much. If not, nothing
// is charged any more.
func (s *Share) Reserve(body int, answer int64) bool {
	if !s.charge(held(body, answer)) {
		s.Release()
		return false
	}
	s.reserved = answer
	return true
}

// Settle charges the memory of a body and an answer until that was sent, instead of the charge before. It reports
// whether there is room for it.
func (s *Share) Settle(body, answer int) bool {
	now := held(body, int64(answer))
	if spare := s.charged - max(0, now-FreeBody); spare > 0 {
		s.pool.giveBack(spare)
		s.charged -= spare
	}
	return s.charge(now)
}
