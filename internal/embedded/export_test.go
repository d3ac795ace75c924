package embedded

import (
	"context"
	"unsafe"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// RunUnswept is Run without sweeps: for what is dated long ago.
func (s *Store) RunUnswept(ctx context.Context) error { return s.saves(ctx) }

// EntrySize is how many bytes each key costs beside its events, counters and place in a map.
const EntrySize = unsafe.Sizeof(entry{})

// RoomOf returns for how many events there is memory in the log of k.
func (s *Store) RoomOf(k store.Key, span store.Span) int {
	return cap(s.entry(k).logOf(span).events)
}
