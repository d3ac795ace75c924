package measure

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/load"
)

func TestMeterReadsBetweenMarks(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this needs Linux's /proc")
	}
	m := &meter{service: []int{os.Getpid()}}
	use := func(until float64) {
		for m.err == nil && m.seconds(m.service) < until {
			continue // something to measure
		}
	}
	use(.1)
	m.mark()
	begin := m.last.Service
	use(begin + .1)
	m.mark()
	if m.err != nil || m.used.Service < .1 || m.used.Service > m.last.Service-begin+.01 || m.used.Store != 0 || m.used.Load < .1 {
		t.Errorf("used %+v, %v; want .1 of service and of load", m.used, m.err)
	}
}

// granting allows every other call.
type granting struct{ calls *int }

func (g granting) Close() error { return nil }

func (g granting) Take([]uint64) (load.Outcome, error) {
	if *g.calls++; *g.calls%2 == 0 {
		return load.Outcome{Allowed: 1}, nil
	}
	return load.Outcome{Denied: 1}, nil
}

func TestRunSaysWhatCameOfALoad(t *testing.T) {
	unique, err := load.ParseKeys("unique")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	r, err := Run(context.Background(), load.Options{
		Open:        func(int64) (load.Caller, error) { return granting{&calls}, nil },
		Connections: 1, Duration: 50 * time.Millisecond, Keys: unique, Limit: 10, Window: time.Hour,
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent != int64(calls) || r.Allowed+r.Denied != r.Sent || r.Seconds < .05 || r.Latency.P50 > r.Latency.Max || r.Latency.Max == 0 {
		t.Errorf("%d calls: %+v", calls, r)
	}
	if r.Wrong == "" {
		t.Error("callers that never came before were denied, and nothing is wrong with it")
	}
}
