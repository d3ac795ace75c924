// Package garbage lets more of it gather than Go does by default, where the heap is small.
package garbage

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// Heap is how much garbage there may be at least before it is collected, in bytes. A small
	// heap collected at twice its size, as is Go's default, is gone through ten times a
	// second under load, which is a tenth of a decision's time.
	Heap = 64 << 20
	// defaultGCPercent is Go's: a heap of Heap and more is collected as ever.
	defaultGCPercent = 100
	// adaptEvery is how late a heap that has grown is noticed: it gathers a hundred MiB of
	// garbage meanwhile at most.
	adaptEvery = time.Second
)

// Spare lets garbage gather up to instances times Heap where the heap is smaller than that,
// until ctx ends. It returns nil. The process has one collector, so one service has it at a time.
func Spare(ctx context.Context, instances int) error {
	before := debug.SetGCPercent(defaultGCPercent)
	defer debug.SetGCPercent(before)
	tick := time.NewTicker(adaptEvery)
	defer tick.Stop()
	for current := defaultGCPercent; ; {
		if percent := gcPercent(liveHeap(), uint64(instances)*Heap); percent != current {
			debug.SetGCPercent(percent)
			current = percent
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// gcPercent returns the percentage of live bytes that is spare, in whole hundreds, or
// the default where that is more.
func gcPercent(live, spare uint64) int {
	if live == 0 { // nothing was collected yet
		return defaultGCPercent
	}
	times := spare / max(live, 1<<20)
	return max(1, int(times)) * defaultGCPercent
}

// liveHeap returns the bytes that the last collection left.
func liveHeap() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return live[0].Value.Uint64()
}
