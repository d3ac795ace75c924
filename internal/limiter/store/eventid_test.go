package store

import (
	"testing"
	"time"
)

// FuzzEventIDs reads the instants of any UUIDs, and back those of its own.
func FuzzEventIDs(f *testing.F) {
	f.Add([]byte{}, int64(1_772_366_400_000))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, int64(0))
	ids := NewEventIDs()
	f.Fuzz(func(t *testing.T, b []byte, at int64) {
		var id EventID
		copy(id[:], b)
		const year = Instant(365 * 24 * time.Hour / time.Millisecond)
		if got := id.Instant(); got < -5000*year || got > 5000*year { // 60 bits of ticks tell 3653 years
			t.Fatalf("%v is dated %d", id, got)
		}
		at &= 1<<44 - 1 // to the year 2527
		if made := ids.Next(Instant(at)); made.Instant() != Instant(at) || !ids.Made(made) {
			t.Fatalf("%v was made at %d, and is dated %d", made, at, made.Instant())
		}
	})
}
