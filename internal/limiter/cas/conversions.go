package cas

import (
	"encoding/binary"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// appendConversions appends the conversions of s to b. It leaves out blocks without sent units.
func appendConversions(b []byte, s *store.State) []byte {
	b = binary.AppendUvarint(b, uint64(len(s.Conversions)))
	for i := range s.Conversions {
		c := &s.Conversions[i]
		b = keys.AppendPart(b, string(c.Limit))
		b = append(binary.AppendVarint(b, int64(c.Last)), BoolByte(c.Probe))
		for j := range c.Blocks {
			block := &c.Blocks[j]
			b = append(b, BoolByte(block.Sent > 0))
			if block.Sent > 0 {
				b = binary.AppendVarint(b, int64(block.Start))
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(block.Sent)), uint64(block.Confirmed))
			}
		}
	}
	return b
}

// appendApplied appends the returned receipts of s to b.
func appendApplied(b []byte, s *store.State) []byte {
	b = binary.AppendVarint(b, int64(s.Applied.Since))
	b = binary.AppendUvarint(b, uint64(len(s.Applied.Last)))
	for _, r := range s.Applied.Last {
		b = binary.AppendVarint(append(b, r.ID[:]...), int64(r.At))
	}
	return b
}

// openApplied reads the bytes that appendApplied wrote.
func openApplied(s *store.State, r *store.Reader) {
	s.Applied.Since = store.Instant(r.Int())
	for range r.Len() {
		s.Applied.Last = append(s.Applied.Last, store.Receipt{ID: r.ID(), At: store.Instant(r.Int())})
	}
}

// openConversions reads the bytes that appendConversions wrote.
func openConversions(p *demand.Plan, s *store.State, r *store.Reader) {
	for range r.Len() {
		c := store.Conversion{Limit: p.LimitID(r.Text()), Last: store.Instant(r.Int()), Probe: r.Byte() == 1}
		for j := range c.Blocks {
			if r.Byte() == 1 {
				c.Blocks[j] = store.ConversionBlock{Start: store.Instant(r.Int()), Sent: int64(r.Uint()), Confirmed: int64(r.Uint())}
				r.Bad = r.Bad || c.Blocks[j].Sent < 0 || c.Blocks[j].Confirmed < 0
			}
		}
		s.Conversions = append(s.Conversions, c)
	}
}
