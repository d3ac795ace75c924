package cassandra_test

import (
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
			config := newConfig(t)
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
