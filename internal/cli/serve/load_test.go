package serve

import (
	"testing"
	"time"
)

func TestProcessorsOf(t *testing.T) {
	for quota, want := range map[string]float64{
		"": 4, "max 100000\n": 4, "50000 100000\n": 0.5, "800000 100000\n": 4, "200000 100000": 2, "0 100000": 4, "200000 0": 4,
		"1 2 3": 4, "x y": 4,
	} {
		if got := processorsOf(4, quota); got != want {
			t.Errorf("of 4 processors under %q: %v, want %v", quota, got, want)
		}
	}
}

// TestProcessorLoadIsThatOfTheLastSecond holds that the share is one of the processors that there are, and of the time
// since the last measure.
func TestProcessorLoadIsThatOfTheLastSecond(t *testing.T) {
	now, used := time.Unix(100, 0), time.Duration(0)
	p := &processorLoad{processors: 2, now: func() time.Time { return now }, used: func() time.Duration { return used }, at: now}
	for _, step := range []struct {
		pass, use time.Duration
		want      float64
	}{
		{200 * time.Millisecond, 400 * time.Millisecond, 0}, // too early to say
		{800 * time.Millisecond, 600 * time.Millisecond, 0.5},
		{time.Second, 2 * time.Second, 1},
		{2 * time.Second, time.Second, 0.25},
	} {
		now, used = now.Add(step.pass), used+step.use
		if got := p.Share(); got != step.want {
			t.Errorf("after %v in which %v were used: %v, want %v", step.pass, step.use, got, step.want)
		}
	}
	if processorTime() <= 0 {
		t.Error("this process has used no processor time")
	}
}
