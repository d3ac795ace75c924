package cassandra

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// firstNodes caches, for each part of the ring, the node that the driver asks first for a key. Finding it out for each key
// costs a tenth of a take. At the edges of a node's ranges, and for a while after the cluster has changed, the cache may name
// another node. That only costs a hop, as the driver routes requests.
type firstNodes struct {
	parts [2][ringParts]atomic.Pointer[firstNode] // for levels that count in the local data centre, and for others
}

// firstNode is the first node of a part of the ring.
type firstNode struct {
	host  string // its id
	until time.Time
}

const (
	// ringParts is the number of parts: a few for each range in a cluster of 50 nodes with 16 ranges each.
	ringParts = 1 << 12
	// firstNodeFor is how long a first node is cached.
	firstNodeFor = 5 * time.Second
)

// laneOf returns the lane of requests for key. A lane's requests have the same first replica, which answers them without
// another node if the level is ONE.
func (s *Store) laneOf(key []byte, span store.Span, level gocql.Consistency) lane {
	return lane{node: s.firstNodeOf(key, level), span: span, level: level}
}

func (s *Store) firstNodeOf(key []byte, level gocql.Consistency) string {
	parts := &s.firstNodes.parts[0]
	if !conn.CountsLocally(level) {
		parts = &s.firstNodes.parts[1]
	}
	part, now := &parts[partOf(tokenOf(key))], time.Now()
	if known := part.Load(); known != nil && now.Before(known.until) {
		return known.host
	}
	known := &firstNode{until: now.Add(firstNodeFor)}
	query := s.session.Query("").RoutingKey(key).Consistency(level)
	if host := s.nodes.WithinBorders(query)(); host != nil {
		known.host = host.Info().HostID()
	}
	part.Store(known)
	return known.host
}

// reading returns l for reads of rows that are later than after.
func (l lane) reading(after, now store.Instant) lane {
	l.reach = bits.Len64(uint64(max(0, now-after)))
	return l
}

// ofTallies returns l for reads of running totals.
func (l lane) ofTallies() lane {
	l.tally = true
	return l
}

// partOf returns the part of the ring with token.
func partOf(token int64) int {
	const width = 1 << 64 / ringParts
	return int((uint64(token) ^ 1<<63) / width)
}

// tokenOf returns the token of a key by Cassandra's Murmur3Partitioner: the first half of MurmurHash3_x64_128 (Austin
// Appleby's, in the public domain). It handles whole 16-byte blocks only, as keys are.
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
