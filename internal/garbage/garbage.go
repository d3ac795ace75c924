// Package garbage raises the garbage collector's target while the heap is small.
package garbage

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// Heap is the least garbage that is collected, in bytes. By default Go collects whenever a heap has doubled. A small
	// heap doubles ten times a second under load, and its collections take a tenth of a decision's time.
	Heap = 64 << 20
	// defaultGCPercent is Go's default, which stays in use for heaps of Heap and more.
	defaultGCPercent = 100
	// adaptEvery is the time until a larger heap is noticed. At most a hundred MiB of garbage gather meanwhile.
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

// gcPercent returns spare as a percentage of live, in whole hundreds, but at least the default.
func gcPercent(live, spare uint64) int {
	if live == 0 { // nothing was collected yet
		return defaultGCPercent
	}
	times := spare / max(live, 1<<20)
	return max(1, int(times)) * defaultGCPercent
}

// liveHeap returns the bytes that the last collection found in use.
func liveHeap() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return live[0].Value.Uint64()
}
