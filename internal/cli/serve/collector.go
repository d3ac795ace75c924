package serve

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// spareHeap is how much garbage there may be at least before it is collected. A small
	// heap collected at twice its size, as is Go's default, is gone through ten times a
	// second under load, which is a tenth of a decision's time.
	spareHeap = 64 << 20 // bytes
	// defaultGCPercent is Go's: a heap of spareHeap and more is collected as ever.
	defaultGCPercent = 100
	// adaptEvery is how late a heap that has grown is noticed: it gathers a hundred MiB of
	// garbage meanwhile at most.
	adaptEvery = time.Second
)

// sparing returns a stage that spares garbage, unless gogc, the value of GOGC, says what is to be
// done.
func sparing(gogc string) stage {
	if gogc != "" {
		return untilDone
	}
	return spareGarbage
}

// spareGarbage lets garbage gather up to spareHeap where the heap is smaller than that,
// until ctx ends. It returns nil. The process has one collector, so one service has it at a time.
func spareGarbage(ctx context.Context) error {
	before := debug.SetGCPercent(defaultGCPercent)
	defer debug.SetGCPercent(before)
	tick := time.NewTicker(adaptEvery)
	defer tick.Stop()
	for current := defaultGCPercent; ; {
		if percent := gcPercent(liveHeap()); percent != current {
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

// gcPercent returns the percentage of live bytes that is spareHeap, in whole hundreds, or
// the default where that is more.
func gcPercent(live uint64) int {
	if live == 0 { // nothing was collected yet
		return defaultGCPercent
	}
	times := spareHeap / max(live, 1<<20)
	return max(1, int(times)) * defaultGCPercent
}

// liveHeap returns the bytes that the last collection left.
func liveHeap() uint64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return live[0].Value.Uint64()
}
