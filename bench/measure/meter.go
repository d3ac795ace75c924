package measure

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"

	"github.com/ratelimitd/ratelimitd/bench/cpu"
	"github.com/ratelimitd/ratelimitd/bench/report"
)

// meter reads the processor time of processes and of this one.
type meter struct {
	service, store []int
	used           report.CPU // between the last two marks
	last           report.CPU
	err            error
}

func (m *meter) mark() {
	now := report.CPU{Service: m.seconds(m.service), Store: m.seconds(m.store), Load: m.seconds([]int{os.Getpid()})}
	m.used = report.CPU{
		Service: rounded(now.Service - m.last.Service), Store: rounded(now.Store - m.last.Store), Load: rounded(now.Load - m.last.Load),
	}
	m.last = now
}

// rounded rounds to hundredths, the resolution of /proc.
func rounded(seconds float64) float64 { return math.Round(seconds*100) / 100 }

func (m *meter) seconds(pids []int) float64 {
	used, err := cpu.Used(pids...)
	m.err = errors.Join(m.err, err)
	return used.Seconds()
}

// Machine describes this machine on a line.
func Machine() string {
	model := "unknown processor"
	info, _ := os.ReadFile("/proc/cpuinfo") // without it, the processor is unknown
	for line := range strings.Lines(string(info)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, %s/%s", runtime.NumCPU(), model, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
