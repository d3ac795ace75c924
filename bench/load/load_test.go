package load

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const quick = time.Millisecond // the time of an answer

// service decides within quick, applies a limit to each key, and stalls once.
type service struct {
	limit    int64
	stallAt  time.Time
	stallFor time.Duration
	breaks   int // how many calls fail
	opened   int
	mu       sync.Mutex
	used     map[uint64]int64
}

type connection struct {
	*service
	cost int64
}

func (s *service) open(cost int64) (Caller, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	return connection{s, cost}, nil
}

func (c connection) Close() error { return nil }

func (c connection) Take(keys []uint64) (o Outcome, err error) {
	wait := quick
	if in := time.Since(c.stallAt); in >= 0 && in < c.stallFor {
		wait += c.stallFor - in
	}
	time.Sleep(wait)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breaks > 0 {
		c.breaks--
		return o, errors.New("broken")
	}
	for _, key := range keys {
		if c.used[key]+c.cost > c.limit {
			o.Denied++
			continue
		}
		c.used[key] += c.cost
		o.Allowed++
	}
	return o, nil
}

// play runs a load on s in a bubble: 10 s after a warm-up of 1 s.
func play(t *testing.T, s *service, change func(*Options)) *Result {
	t.Helper()
	keys, _ := ParseKeys("unique")
	s.used = make(map[uint64]int64)
	o := Options{
		Open: s.open, Connections: 4, WarmUp: time.Second, Duration: 10 * time.Second, Keys: keys, Seed: 1,
		Limit: s.limit, Window: 24 * time.Hour, Sleep: time.Sleep,
	}
	change(&o)
	result, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// A service that stalls for a second delays all calls that are due in that time, and latencies must show it.
func TestOpenLoopCountsWhatWasDueWhileStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{limit: 10, stallAt: time.Now().Add(5 * time.Second), stallFor: time.Second}
		r := play(t, s, func(o *Options) { o.Rate = 100 })
		if r.Sent() != 1000 || r.Whole.Sent() != 1100 {
			t.Errorf("sent %d of 1000, with the warm-up %d of 1100", r.Sent(), r.Whole.Sent())
		}
		// A tenth of the calls were due evenly during the stall, so one of a hundred calls waited for 0.9 s or more.
		expect(t, r, 99, 890*time.Millisecond, 920*time.Millisecond)
		expect(t, r, 95, 490*time.Millisecond, 530*time.Millisecond)
		expect(t, r, 50, quick, quick+quick/100)
	})
}

// A closed loop makes no calls while it waits, so only four of many calls see the stall.
func TestClosedLoopDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{limit: 10, stallAt: time.Now().Add(5 * time.Second), stallFor: time.Second}
		r := play(t, s, func(*Options) {})
		expect(t, r, 99.9, quick, quick+quick/100)
		expect(t, r, 100, time.Second, time.Second+2*quick)
		if want := int64(4 * 9 * 1000); r.Sent() < want-8 || r.Sent() > want+8 {
			t.Errorf("sent %d, want %d", r.Sent(), want)
		}
	})
}

func expect(t *testing.T, r *Result, percent float64, low, high time.Duration) {
	t.Helper()
	if got := time.Duration(r.Latency.ValueAtPercentile(percent)); got < low || got > high {
		t.Errorf("p%v is %v, want %v to %v", percent, got, low, high)
	}
}

// If there are more calls than can be answered, all of them are made late.
func TestOpenLoopLeavesNothingOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, &service{limit: 10}, func(o *Options) { o.Rate, o.Connections = 2000, 1 })
		if r.Sent() != 20_000 || r.Elapsed < 20*time.Second {
			t.Errorf("sent %d of 20000 in %v", r.Sent(), r.Elapsed)
		}
	})
}

func TestEveryDistributionIsHeldToItsLimit(t *testing.T) {
	for _, keys := range Distributions() {
		for _, batch := range []int{0, 100} {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, &service{limit: 10}, func(o *Options) { o.Keys, o.Batch, o.Duration = keys, batch, time.Second })
				if err := r.Check(); err != nil {
					t.Errorf("%v: %v", keys, err)
				}
				denied := map[string]float64{"unique": 0, "hot": 1, "attack": .9}
				share := float64(r.Denied) / float64(r.Sent())
				if want, known := denied[keys.String()]; known && (share < want-.01 || share > want+.01) {
					t.Errorf("%v: a share of %.3f of the calls was denied, want %v", keys, share, want)
				}
			})
		}
	}
}

func TestWrongLimitsAreFound(t *testing.T) {
	hot, _ := ParseKeys("hot")
	for _, limit := range []int64{9, 12} {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, &service{limit: limit}, func(o *Options) { o.Keys, o.Limit = hot, 10 })
			if r.Check() == nil {
				t.Errorf("a limit of %d passes as a limit of 10", limit)
			}
			// The order of the last four concurrent calls is unknown.
			if r.OverAdmitted != max(0, limit-10) || limit > 10 && r.WrongDenials != 0 {
				t.Errorf("with a limit of %d instead of 10: %d too many, %d denied wrongly", limit, r.OverAdmitted, r.WrongDenials)
			}
		})
	}
}

func TestBrokenCallsFailAndOthersFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &service{limit: 10, breaks: 5}
		r := play(t, s, func(*Options) {})
		if r.Whole.Failed != 5 || s.opened != 4+5 || r.Whole.Allowed == 0 {
			t.Errorf("%+v, opened %d times; want 5 failed and 9 opened", r.Whole, s.opened)
		}
		if err := r.Check(); err != nil {
			t.Errorf("failed calls need not have been allowed: %v", err)
		}
	})
}

func TestMarksEncloseTheMeasurement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, marks := time.Now(), []time.Duration(nil)
		play(t, &service{limit: 10}, func(o *Options) { o.Mark = func() { marks = append(marks, time.Since(begin)) } })
		if len(marks) != 2 || marks[0] != time.Second || marks[1] < 11*time.Second || marks[1] > 11*time.Second+quick {
			t.Errorf("marks at %v", marks)
		}
	})
}
