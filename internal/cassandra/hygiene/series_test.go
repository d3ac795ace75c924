package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSummaryComparesQuarters writes what a series that grows and one that does not come
// to.
func TestSummaryComparesQuarters(t *testing.T) {
	s := newSeries(time.Now())
	for i := range 40 {
		at := float64(i + 1)
		s.points["grows"] = append(s.points["grows"], point{at, at})
		s.points["stays"] = append(s.points["stays"], point{at, 3 + float64(i%3/2)})
	}
	var out strings.Builder
	if err := s.writeSummary(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| grows | 5 | 14 | 24 | 35 | 2.50 |", "| stays | 3 | 3 | 3 | 3 | 1.00 |"} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}

func TestSamplesAsCSV(t *testing.T) {
	s := newSeries(time.Now())
	s.points["MB all data"] = []point{{10, 1.5}, {20.04, 2}}
	var out strings.Builder
	if err := s.writeCSV(&out); err != nil {
		t.Fatal(err)
	}
	if want := "seconds,series,value\n10.0,MB all data,1.5\n20.0,MB all data,2\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	again, err := readCSV(strings.NewReader(out.String()))
	if want := []point{{10, 1.5}, {20, 2}}; err != nil || !slices.Equal(again.points["MB all data"], want) {
		t.Errorf("read again: %v, %v", again, err)
	}
	if _, err := readCSV(strings.NewReader("seconds,series,value\nten,rows,1\n")); err == nil {
		t.Error("a sample at \"ten\" was read")
	}
}

func TestPercentile(t *testing.T) {
	for _, c := range []struct {
		sorted  []int
		p, want int
	}{{nil, 50, 0}, {[]int{7}, 99, 7}, {[]int{1, 2, 3, 4, 5}, 50, 3}, {[]int{1, 2, 3, 4, 5}, 100, 5}} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("percentile %d of %v: %d, want %d", c.p, c.sorted, got, c.want)
		}
	}
}

// TestDrainedLatenciesAreThoseSince drains twice.
func TestDrainedLatenciesAreThoseSince(t *testing.T) {
	l := newLatencies()
	l.add("log", 2*time.Second)
	l.add("log", time.Second)
	if got := l.drain()["log"]; len(got) != 2 || got[0] != time.Second {
		t.Errorf("drained %v", got)
	}
	if got := l.drain(); len(got) != 0 {
		t.Errorf("drained %v again", got)
	}
}
