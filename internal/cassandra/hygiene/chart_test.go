package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// TestChartIsSVGWithALineForEachSeries draws a chart and reads it again.
func TestChartIsSVGWithALineForEachSeries(t *testing.T) {
	s := newSeries(time.Now())
	s.points["rows a"] = []point{{0, 0}, {600, 80}}
	s.points["rows b"] = []point{{0, 40}, {600, 40}}
	c := chart{name: "rows", title: "Rows < all", lines: each("rows ", []string{"a", "b"})}
	var out strings.Builder
	if err := c.draw(&out, s); err != nil {
		t.Fatal(err)
	}
	elements := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local]++
		}
	}
	if elements["polyline"] != 2 {
		t.Errorf("%d lines, want 2", elements["polyline"])
	}
	for _, want := range []string{
		`points="60.0,226.0 510.0,34.0"`,  // from the corner to the top at the end
		`points="60.0,130.0 510.0,130.0"`, // half way up all the time
		">80</text>", ">10 min</text>", "Rows &lt; all",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}

// TestOutliersAreCutOff has one sample of ten that is a hundred times the others.
func TestOutliersAreCutOff(t *testing.T) {
	s := newSeries(time.Now())
	for i := range 10 {
		s.points["ms a"] = append(s.points["ms a"], point{float64(60 * i), 4})
	}
	s.points["ms a"][3].value = 400
	c := chart{lines: each("ms ", []string{"a"}), fit: 90}
	f := c.frame(s)
	if f.most != 4 {
		t.Errorf("the axis ends at %g, want 4", f.most)
	}
	if line := f.polyline(s.points["ms a"]); strings.Contains(line, "-") {
		t.Errorf("the line leaves the chart: %s", line)
	}
}

func TestRoundUp(t *testing.T) {
	for v, want := range map[float64]float64{1: 1, 1.2: 2, 0.3: 0.4, 35: 40, 61: 80, 99: 100, 1000: 1000, 14999: 20000} {
		if got := roundUp(v); got != want {
			t.Errorf("roundUp(%g) is %g, want %g", v, got, want)
		}
	}
}
