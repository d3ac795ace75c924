package garbage

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestGCPercent spares 64 MiB where the heap is small, and nothing where it is not.
func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 100, 1: 6400, 1 << 20: 6400, 8 << 20: 800, 20 << 20: 300, 32 << 20: 200, 33 << 20: 100, 64 << 20: 100, 1 << 40: 100,
	} {
		if got := gcPercent(live, Heap); got != want {
			t.Errorf("%d bytes live: %d %%, want %d %%", live, got, want)
		}
	}
}

// TestSpare leaves the collector as it was.
func TestSpare(t *testing.T) {
	const given = 123
	defer debug.SetGCPercent(debug.SetGCPercent(given))
	runtime.GC()
	if live := liveHeap(); live == 0 || live > 1<<40 {
		t.Errorf("%d bytes are live", live)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Spare(ended, 1); err != nil {
		t.Error(err)
	}
	if got := debug.SetGCPercent(given); got != given {
		t.Errorf("%d %% when it has ended, want %d %%", got, given)
	}
}
