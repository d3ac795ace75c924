package cas

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A key's cell has the fills of a policy's buckets, and its conversions. The first byte of a value is its format. The
// formats of later versions are refused, because they might be misread.
const (
	cellFormat  = 1
	conversions = 2 // cellFormat, followed by conversions
	applied     = 3 // conversions, followed by returned receipts
)

var errCellFormat = fmt.Errorf("%w: a cell is not in a format that this version reads", store.ErrUnavailable)

// Bounds of a cell.
const (
	// keptVersions is the number of its last versions that a cell lists, so that an instance without an answer to a write
	// finds out whether that was stored. At a few milliseconds a write, the list spans more than a store timeout.
	keptVersions = 64
	// keptInDoubt is how long a cell whose changes are written behind lists the latest version of each process: longer
	// than most outages.
	keptInDoubt = time.Hour
	// longestCell is the longest time that a cell is kept, some nine years. A bucket that was filled by records may take
	// longer to drain.
	longestCell = 1 << 28 * time.Second
	// CellMargin is the time by which a cell outlives its windows: a delayed write that expects no cell must not find the
	// cell gone.
	CellMargin = time.Minute
)

// Chain is the history of a cell, as the cell lists it.
type Chain struct {
	newest   store.Instant // the latest instant of a change of the cell: instants never decrease
	versions versions      // the last versions, the newest first
	whole    bool          // versions has every version since the cell was first written
}

// has reports whether the cell lists version.
func (c *Chain) has(version store.EventID) bool {
	for i := range c.versions.Len() {
		if c.versions.At(i) == version {
			return true
		}
	}
	return false
}

// versions is a list of versions in the encoding of a cell: one after the other.
type versions []byte

// versionSize is the length of a version in bytes.
const versionSize = len(store.EventID{})

func (v versions) Len() int { return len(v) / versionSize }

func (v versions) At(i int) store.EventID { return store.EventID(v[i*versionSize:]) }

// before returns the versions of v that must be listed after a new version: those that the cell had at the horizon and
// since. The horizon is earlier than the start of any attempt in progress.
func (v versions) before(horizon store.Instant) versions {
	for i := range v.Len() {
		if i+2 == keptVersions || v.At(i).Instant() < horizon { // earlier versions were replaced before the horizon
			return v[:(i+1)*versionSize]
		}
	}
	return v
}

// ofEach returns the versions of v that must be listed if changes are written behind: up to keptVersions/2 of recent, which
// is the beginning of v, and of the others the latest of each process, unless it is older than the horizon. So a process
// that could not reach the store for long can still find out whether its last write is stored.
func (v versions) ofEach(recent versions, horizon store.Instant) versions {
	kept := slices.Clip(recent[:min(len(recent), keptVersions/2*versionSize)])
	for i := kept.Len(); i < v.Len() && kept.Len() < keptVersions-1; i++ {
		if id := v.At(i); id.Instant() >= horizon && !kept.hasOf(id.Node()) {
			kept = append(kept, id[:]...)
		}
	}
	return kept
}

// hasOf reports whether v has a version of the process node.
func (v versions) hasOf(node [6]byte) bool {
	for i := range v.Len() {
		if v.At(i).Node() == node {
			return true
		}
	}
	return false
}

// Open decodes s's cell into s: the buckets, the conversions and the reset. It returns the cell's history.
func Open(p *demand.Plan, s *store.State) (Chain, error) {
	s.Buckets, s.Conversions, s.Applied = s.Buckets[:0], s.Conversions[:0], store.Applied{}
	if len(s.Cell.Value) == 0 {
		return Chain{whole: true}, nil
	}
	r := store.Reader{B: s.Cell.Value}
	format := r.Byte()
	if format < cellFormat || format > applied {
		return Chain{}, errCellFormat
	}
	c := Chain{newest: store.Instant(r.Int()), whole: r.Byte() == 1}
	c.versions = r.Take(r.Len() * versionSize)
	reset := store.Instant(r.Int())
	for range r.Len() {
		bucket := store.Bucket{Limit: p.LimitID(r.Text()), At: store.Instant(r.Int())}
		bucket.Fill = store.Amount{Hi: r.Uint(), Lo: r.Uint()}
		s.Buckets = append(s.Buckets, bucket)
	}
	if r.Byte() != 0 { // earlier builds kept windows at this place, in cells of keys that are no longer read
		r.Bad = true
	}
	s.Reset = max(s.Reset, reset)
	if format >= conversions {
		openConversions(p, s, &r)
	}
	if format >= applied {
		openApplied(s, &r)
	}
	if r.Bad {
		return Chain{}, errCellFormat
	}
	return c, nil
}

// Shut returns the write that replaces the cell from which s was read. The new cell has s, this version and the history c.
// Shut appends its value to b.
func Shut(
	p *demand.Plan, b []byte, s *store.State, c *Chain, version store.EventID, now store.Instant, o *demand.Settings,
) store.CellWrite {
	earlier := c.versions.before(now.Add(-2 * (o.StoreTimeout + o.ClockTolerance)))
	if p.Behind {
		earlier = c.versions.ofEach(earlier, now.Add(-keptInDoubt))
	}
	whole := c.whole && len(earlier) == len(c.versions)
	format := formatOf(s)
	b = append(b, format)
	b = binary.AppendVarint(b, int64(max(c.newest, now)))
	b = append(b, BoolByte(whole))
	b = binary.AppendUvarint(b, uint64(1+earlier.Len()))
	b = append(append(b, version[:]...), earlier...)
	b = binary.AppendVarint(b, int64(s.Reset))
	b = appendBuckets(p, b, s, now)
	b = append(b, 0) // see Open
	if format >= conversions {
		b = appendConversions(b, s)
	}
	if format >= applied {
		b = appendApplied(b, s)
	}
	return store.CellWrite{If: s.Cell.Version, Version: version, Value: b, TTL: cellTTL(p, s, now, o), Serial: o.Serial}
}

// formatOf returns the earliest format that can hold all of s.
func formatOf(s *store.State) byte {
	switch {
	case len(s.Applied.Last) > 0:
		return applied
	case len(s.Conversions) > 0:
		return conversions
	}
	return cellFormat
}

// appendBuckets appends to b the buckets of s that are not drained.
func appendBuckets(p *demand.Plan, b []byte, s *store.State, now store.Instant) []byte {
	live := 0
	for i := range s.Buckets {
		if isLive(p, &s.Buckets[i], s, now) {
			live++
		}
	}
	b = binary.AppendUvarint(b, uint64(live))
	for i := range s.Buckets {
		if l := &s.Buckets[i]; isLive(p, l, s, now) {
			b = keys.AppendPart(b, string(l.Limit))
			b = binary.AppendVarint(b, int64(l.At))
			b = binary.AppendUvarint(binary.AppendUvarint(b, l.Fill.Hi), l.Fill.Lo)
		}
	}
	return b
}

// isLive reports whether b, a bucket of s, holds anything at now.
func isLive(p *demand.Plan, b *store.Bucket, s *store.State, now store.Instant) bool {
	r := p.RuleOf(b.Limit)
	if r == nil {
		return true // another version of the policy may still count in it
	}
	fill, _ := r.FillAt(s, now)
	return fill != store.Amount{}
}

// cellTTL returns the time to live of the cell: until none of its units count, and no write is in progress that expects no
// cell.
func cellTTL(p *demand.Plan, s *store.State, now store.Instant, o *demand.Settings) time.Duration {
	lasts := max(2*p.LongestWindow(), p.ResetTTL, p.CellLasts(s, now))
	return min(longestCell, clock.WholeSeconds(min(longestCell, lasts)+CellMargin+o.ClockError))
}

// BoolByte returns 1 for true, else 0.
func BoolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}
