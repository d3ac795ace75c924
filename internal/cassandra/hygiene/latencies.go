package main

import (
	"slices"
	"sync"
	"time"
)

// latencies collects how long calls took, by name, between two looks at them.
type latencies struct {
	mu  sync.Mutex
	all map[string][]time.Duration
}

func newLatencies() *latencies { return &latencies{all: make(map[string][]time.Duration)} }

func (l *latencies) add(name string, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[name] = append(l.all[name], took)
}

// drain returns what was collected since the last time, in order of length.
func (l *latencies) drain() map[string][]time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	drained := l.all
	l.all = make(map[string][]time.Duration)
	for _, took := range drained {
		slices.Sort(took)
	}
	return drained
}

// percentile returns that of values, which are in order; 0 of none.
func percentile[T any](sorted []T, p int) (at T) {
	if len(sorted) == 0 {
		return at
	}
	return sorted[(len(sorted)-1)*p/100]
}
