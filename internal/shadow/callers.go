package shadow

import (
	"encoding/json"

	"github.com/axiomhq/hyperloglog"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// precision is the precision of sketches of at most 2 KiB, whose standard error is 2.3 %. Up to some hundreds they are
// exact.
const precision = 11

// Callers estimates the number of keys in a set without keeping them. A nil Callers is an unknown number.
//
// Package overshoot uses datasketches-go, which has such a sketch, too. Its reader indexes the bytes of a sketch without
// checks, as of version 0.2.0: a truncated one from another instance is a panic, and not an error.
type Callers struct{ sketch *hyperloglog.Sketch }

func newCallers() *Callers {
	sketch, _ := hyperloglog.NewSketch(precision, true) // a valid precision
	return &Callers{sketch}
}

// add adds key, unless c is nil.
func (c *Callers) add(key store.Key) {
	if c != nil {
		c.sketch.InsertHash(key.Prefix())
	}
}

// Count returns the number of keys, nil if it is not known.
func (c *Callers) Count() *int64 {
	if c == nil {
		return nil
	}
	n := int64(c.sketch.Estimate()) //nolint:gosec // far below 1<<63
	return &n
}

// clone returns a copy of c.
func (c *Callers) clone() *Callers {
	if c == nil {
		return nil
	}
	return &Callers{c.sketch.Clone()}
}

// union returns the keys that are in a or b, which stay as they are.
func union(a, b *Callers) *Callers {
	if a == nil || b == nil {
		return nil
	}
	both := a.clone()
	_ = both.sketch.Merge(b.sketch) // of the same precision
	return both
}

// MarshalJSON writes c for another instance.
func (c *Callers) MarshalJSON() ([]byte, error) {
	b, err := c.sketch.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(b)
}

// UnmarshalJSON reads the Callers of another instance.
func (c *Callers) UnmarshalJSON(text []byte) error {
	var b []byte
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	read := newCallers()
	if err := read.sketch.UnmarshalBinary(b); err != nil {
		return err
	}
	*c = *newCallers()
	return c.sketch.Merge(read.sketch) // refuses another precision
}
