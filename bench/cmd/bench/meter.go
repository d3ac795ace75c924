package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/ratelimitd/ratelimitd/bench/cpu"
	"github.com/ratelimitd/ratelimitd/bench/report"
)

// meter reads what a subject and this process use of the processor.
type meter struct {
	s    *subject
	used report.CPU // between the last two marks
	last report.CPU
	err  error
}

func (m *meter) mark() {
	now := report.CPU{Service: m.seconds(m.s.service), Store: m.seconds(m.s.store), Load: m.seconds([]int{os.Getpid()})}
	m.used = report.CPU{Service: now.Service - m.last.Service, Store: now.Store - m.last.Store, Load: now.Load - m.last.Load}
	m.last = now
}

func (m *meter) seconds(pids []int) float64 {
	used, err := cpu.Used(pids...)
	m.err = errors.Join(m.err, err)
	return used.Seconds()
}

// machine says in a line what this is measured on.
func machine() string {
	model := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo") // where there is none, it is unknown
	for line := range strings.Lines(string(info)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, %s/%s", runtime.NumCPU(), model, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
