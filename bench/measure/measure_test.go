package measure

import (
	"os"
	"testing"
	"testing/synctest"
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

// granting allows every other call, each after a millisecond.
type granting struct{ calls *int }

func (g granting) Close() error { return nil }

func (g granting) Take([]uint64) (load.Outcome, error) {
	time.Sleep(time.Millisecond)
	if *g.calls++; *g.calls%2 == 0 {
		return load.Outcome{Allowed: 1, Bytes: 100}, nil
	}
	return load.Outcome{Denied: 1, Bytes: 300}, nil
}

func TestRunReturnsTheResultOfALoad(t *testing.T) {
	unique, err := load.ParseKeys("unique")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r, err := Run(t.Context(), load.Options{
			Open:        func(int64) (load.Caller, error) { return granting{&calls}, nil },
			Connections: 1, Duration: time.Second, Keys: unique, Limit: 10, Window: time.Hour,
		}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Sent != 1000 || r.Allowed != 500 || r.Denied != 500 || r.Seconds != 1 || r.AnswerBytes != 200 {
			t.Errorf("%+v", r)
		}
		if l := r.Latency; l.P50 < 999 || l.Max > 1001 {
			t.Errorf("latencies %+v, want 1 ms", l)
		}
		if r.Wrong == "" {
			t.Error("new callers were denied, and the result has no error")
		}
	})
}
