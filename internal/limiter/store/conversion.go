package store

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// Conversion is what a limit on conversion remembers: what was sent and confirmed in each block
// of its window.
type Conversion struct {
	Limit  policy.LimitID
	Last   Instant // of the last unit that was sent
	Probe  bool    // it was a probe
	Blocks [policy.ConversionBlocks]ConversionBlock
}

// ConversionBlock is what was sent within one block, and how much of that is confirmed. It lies
// at the number of its block, modulo how many there are.
type ConversionBlock struct {
	Start           Instant
	Sent, Confirmed int64
}

// ConversionOf returns what s has of the limit id; nil for nothing.
func (s *State) ConversionOf(id policy.LimitID) *Conversion {
	for i := range s.Conversions {
		if c := &s.Conversions[i]; c.Limit == id {
			return c
		}
	}
	return nil
}
