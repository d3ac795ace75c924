package main

import (
	"slices"
	"testing"
	"time"
)

func TestACrowdIsTheSameForASeed(t *testing.T) {
	for _, over := range []time.Duration{0, time.Second, defaultOver} {
		visits, target := newCrowd(7, over)
		again, sameTarget := newCrowd(7, over)
		if !slices.Equal(visits, again) || target != sameTarget {
			t.Errorf("over %v: the same seed gave another crowd", over)
		}
		others, _ := newCrowd(8, over)
		if slices.Equal(visits, others) {
			t.Errorf("over %v: another seed gave the same crowd", over)
		}
	}
}

func TestACrowdIsWhatItShouldBe(t *testing.T) {
	visits, target := newCrowd(1, defaultOver)
	if len(visits) != 2000 {
		t.Errorf("%d visits", len(visits))
	}
	asked := make(map[Phone]map[caller]int)
	for i, v := range visits {
		if v.at < 0 || v.at > defaultOver || i > 0 && v.at < visits[i-1].at {
			t.Errorf("visit %d is at %v", i, v.at)
		}
		phone, err := ParsePhone(v.typed)
		if err != nil {
			t.Fatalf("visit %d: %q: %v", i, v.typed, err)
		}
		if asked[phone] == nil {
			asked[phone] = make(map[caller]int)
		}
		asked[phone][v.caller]++
	}
	if len(asked) != 950 {
		t.Errorf("%d numbers", len(asked))
	}
	want := map[caller]int{once: 1, impatient: 2, patient: 2, victim: 2, hammerer: 600, walker: 2}
	for phone, by := range asked {
		if len(by) > 1 && phone != target {
			t.Errorf("a number is shared by %v", by)
		}
		for who, n := range by {
			if n != want[who] {
				t.Errorf("%s asks %d times for a number, want %d", who, n, want[who])
			}
		}
	}
}
