package cassandra_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

func TestClockThatIsOff(t *testing.T) {
	for _, c := range []struct {
		name   string
		offset time.Duration
		skewed bool
	}{
		{"right", 0, false},
		{"ahead", 3 * time.Second, true},
		{"behind", -3 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := commonConfig(t)
			config.Now = func() time.Time { return time.Now().Add(c.offset) }
			config.ClockTolerance = time.Second
			store := newStore(t, config)
			ahead, known := store.ClockOffset()
			if !known || (ahead-c.offset).Abs() > 500*time.Millisecond {
				t.Errorf("%v ahead, known %v, want %v", ahead, known, c.offset)
			}
			if store.Skewed() != c.skewed {
				t.Errorf("skewed %v at %v", store.Skewed(), ahead)
			}
		})
	}
}

// A clock that is set is off at once, not when it is measured next.
func TestClockThatIsSet(t *testing.T) {
	var set atomic.Int64
	config := commonConfig(t)
	config.Now = func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
	config.ClockTolerance = time.Second
	store := newStore(t, config) // which nothing runs: it is measured once
	for _, by := range []time.Duration{0, 3 * time.Second, 0, -3 * time.Second, 0} {
		set.Store(int64(by))
		if ahead, _ := store.ClockOffset(); (ahead - by).Abs() > 500*time.Millisecond {
			t.Errorf("%v ahead once it was set by %v", ahead, by)
		}
		if store.Skewed() != (by != 0) {
			t.Errorf("skewed %v once it was set by %v", store.Skewed(), by)
		}
	}
}

// The clock of a machine that slept seems to have been set: it is measured at once.
func TestClockOfAMachineThatSlept(t *testing.T) {
	config := commonConfig(t)
	config.ClockTolerance = time.Second
	store := newStore(t, config)
	store.MeasureClockEvery(time.Hour)
	store.SleepFor(5 * time.Second)
	if !store.Skewed() {
		t.Fatal("nothing was seen of 5 s of sleep")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() { defer close(ran); _ = store.Run(ctx) }()
	defer func() { cancel(); <-ran }()
	for end := time.Now().Add(20 * time.Second); store.Skewed(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the clock is right, and was not measured")
		}
	}
}
