package cassandra

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// owners know which node the driver asks first for a key, slice by slice of the ring: to
// ask the driver for each key costs as much as a tenth of a take. At the edges of a
// node's ranges, and for a while after the cluster has changed, they may name another
// one, which costs a hop and nothing else: requests are routed by the driver.
type owners struct {
	slices [2][ownerSlices]atomic.Pointer[owner] // for levels that count in the local data centre, and others
}

// owner is the first node of a slice.
type owner struct {
	host  string // its id
	until time.Time
}

const (
	// ownerSlices is how many there are: a few for each of the ranges of a cluster of 50
	// nodes with 16 each.
	ownerSlices = 1 << 12
	// ownerFor is how long an owner is believed to be the same.
	ownerFor = 5 * time.Second
)

// laneOf returns the lane of requests for key: those whose first replica is the same
// node, which needs no other to answer for them at a level of one.
func (s *Store) laneOf(key []byte, span limiter.Span, level gocql.Consistency) lane {
	return lane{owner: s.ownerOf(key, level), span: span, level: level}
}

func (s *Store) ownerOf(key []byte, level gocql.Consistency) string {
	slices := &s.owners.slices[0]
	if !countsLocally(level) {
		slices = &s.owners.slices[1]
	}
	slice, now := &slices[sliceOf(tokenOf(key))], time.Now()
	if known := slice.Load(); known != nil && now.Before(known.until) {
		return known.host
	}
	known := &owner{until: now.Add(ownerFor)}
	query := s.session.Query("").RoutingKey(key).Consistency(level)
	if host := s.nodes.withinBorders(query)(); host != nil {
		known.host = host.Info().HostID()
	}
	slice.Store(known)
	return known.host
}

// reading returns l for reads of what is later than an instant.
func (l lane) reading(after, now limiter.Instant) lane {
	l.reach = bits.Len64(uint64(max(0, now-after)))
	return l
}

// sliceOf returns the slice of the ring that token is in.
func sliceOf(token int64) int {
	const width = 1 << 64 / ownerSlices
	return int((uint64(token) ^ 1<<63) / width)
}

// tokenOf returns the place of a key on the ring by Cassandra's Murmur3Partitioner: the
// first half of MurmurHash3_x64_128 (Austin Appleby's, in the public domain) of a whole
// number of 16-byte blocks, which keys are.
func tokenOf(key []byte) int64 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	h1, h2, n := uint64(0), uint64(0), uint64(len(key))
	for ; len(key) >= 16; key = key[16:] {
		k1, k2 := binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])
		h1 ^= bits.RotateLeft64(k1*c1, 31) * c2
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= bits.RotateLeft64(k2*c2, 33) * c1
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	h1, h2 = h1^n, h2^n
	h1 += h2
	h2 += h1
	return int64(mixed(h1) + mixed(h2))
}

// mixed is MurmurHash3's finalizer.
func mixed(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
