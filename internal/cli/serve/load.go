package serve

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

// loadOver is the shortest time that the load is averaged over.
const loadOver = time.Second

// processorLoad measures the share of its processors that this process uses.
type processorLoad struct {
	processors float64
	now        func() time.Time     // monotonic
	used       func() time.Duration // processor time since the process began

	mu    sync.Mutex
	at    time.Time
	until time.Duration // processor time used by then
	share float64
}

func newProcessorLoad() *processorLoad {
	quota, _ := os.ReadFile("/sys/fs/cgroup/cpu.max") // missing where there is no cgroup v2: no quota
	return &processorLoad{
		processors: processorsOf(runtime.GOMAXPROCS(0), string(quota)), now: time.Now, used: processorTime,
		at: time.Now(), until: processorTime(),
	}
}

// processorsOf returns the number of processors that a process may use: at most most, and at most the quota in a cgroup
// v2's cpu.max, such as "200000 100000" or "max 100000".
func processorsOf(most int, quota string) float64 {
	fields := strings.Fields(quota)
	if len(fields) != 2 {
		return float64(most)
	}
	of, err := strconv.ParseFloat(fields[0], 64)
	period, errPeriod := strconv.ParseFloat(fields[1], 64)
	if err != nil || errPeriod != nil || of <= 0 || period <= 0 {
		return float64(most)
	}
	return min(float64(most), of/period)
}

// Share returns the share of its processors that the process has used lately, 0 to 1.
func (p *processorLoad) Share() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if took := now.Sub(p.at); took >= loadOver {
		used := p.used()
		p.share = (used - p.until).Seconds() / took.Seconds() / p.processors
		p.at, p.until = now, used
	}
	return p.share
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// load returns a function that measures this instance's load.
func (p *peers) load(maxKeys int) func() cluster.Load {
	processors := newProcessorLoad()
	return func() cluster.Load {
		load := cluster.Load{CPU: processors.Share()}
		if p.engine != nil && maxKeys > 0 {
			load.Memory = float64(p.engine.Remembered()) / float64(maxKeys)
		}
		return load
	}
}
