package main

import (
	"cmp"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
)

// chart is some series drawn over time.
type chart struct {
	name  string // of the file
	title string // with the unit
	lines []line
	fit   int // percent of the samples that the axis must hold, the others are cut off; 0: all
}

// line is one series of a chart.
type line struct {
	label  string
	series string
}

// charts are those that are drawn.
var charts = []chart{
	{name: "rows", title: "Rows that live", lines: append(each("rows ", tables), line{"of reservations", "rows for two hours cells"})},
	{name: "disk", title: "On disk, MB", lines: append(each("MB ", tables), line{"system.paxos", "MB system.paxos"})},
	{name: "sstables", title: "SSTables", lines: each("SSTables ", tables)},
	{name: "tombstones", title: "Tombstones a read, 99th percentile", lines: each("tombstones a read p99 ", tables)},
	{name: "sweeper", title: "Seconds since the oldest counter expired", lines: []line{{"lag", "s since the oldest counter expired"}}},
	{name: "log", title: "A take under a sliding log, median, ms", lines: keysOf(policyLog), fit: 95},
	{name: "fixed", title: "A take under a fixed window, median, ms", lines: keysOf(policyFixed), fit: 95},
	{name: "bucket", title: "A take under a token bucket, median, ms", lines: keysOf(policyBucket), fit: 95},
}

func each(prefix string, names []string) (lines []line) {
	for _, name := range names {
		lines = append(lines, line{name, prefix + name})
	}
	return lines
}

func keysOf(policy string) []line {
	return []line{
		{"a fresh key", "ms p50 " + policy + " fresh"},
		{"a popular key", "ms p50 " + policy + " popular"},
		{"an attacked key", "ms p50 " + policy + " attacked"},
	}
}

// The measures of a chart, in pixels.
const (
	width, height          = 640, 260
	left, right, top, foot = 60, 130, 34, 34
	gridLines              = 4
	labelHeight            = 18
)

var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"} // told apart by the colour-blind

var svg = template.Must(template.New("chart").Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="11">
<rect width="{{.Width}}" height="{{.Height}}" fill="#ffffff"/>
<text x="{{.Left}}" y="20" font-size="13" font-weight="bold">{{.Title}}</text>
{{range .Grid}}<path d="{{.Path}}" stroke="#dddddd"/><text x="{{.X}}" y="{{.Y}}" text-anchor="{{.Anchor}}">{{.Text}}</text>
{{end}}{{range .Lines}}<polyline fill="none" stroke="{{.Colour}}" stroke-width="1.5" points="{{.Points}}"/>
<text x="{{.X}}" y="{{.Y}}" fill="{{.Colour}}">{{.Label}}</text>
{{end}}</svg>
`))

type drawnLine struct {
	Colour, Points, Label string
	X, Y                  int
}

type gridLine struct {
	Path, Anchor, Text string
	X, Y               float64
}

// draw writes c as SVG.
func (c *chart) draw(to io.Writer, s *series) error {
	f, title := c.frame(s), c.title
	if c.fit != 0 {
		title += fmt.Sprintf("; %d %% of samples are above", 100-c.fit)
	}
	var lines []drawnLine
	for i, l := range c.lines {
		lines = append(lines, drawnLine{
			Colour: colours[i%len(colours)], Points: f.polyline(s.points[l.series]), Label: l.label,
			X: width - right + 8, Y: top + labelHeight*(i+1),
		})
	}
	return svg.Execute(to, map[string]any{
		"Width": width, "Height": height, "Left": left, "Title": title, "Lines": lines, "Grid": f.grid(),
	})
}

// frame is what a chart's axes span, both from 0.
type frame struct{ seconds, most float64 }

// frame returns one that as much of c's series as must fits in.
func (c *chart) frame(s *series) frame {
	f := frame{seconds: 60, most: 1}
	var values []float64
	for _, l := range c.lines {
		for _, p := range s.points[l.series] {
			f.seconds = max(f.seconds, p.at)
			values = append(values, p.value)
		}
	}
	slices.Sort(values)
	f.most = roundUp(max(f.most, percentile(values, cmp.Or(c.fit, 100))))
	return f
}

// roundUp returns the next number of one digit and zeros whose quarters are short: 1, 2,
// 4, 6, 8 and their tens.
func roundUp(v float64) float64 {
	ten := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 2, 4, 6, 8} {
		if v <= step*ten {
			return step * ten
		}
	}
	return 10 * ten
}

func (f frame) x(seconds float64) float64 { return left + seconds/f.seconds*(width-left-right) }

func (f frame) y(value float64) float64 { return height - foot - value/f.most*(height-top-foot) }

func (f frame) polyline(points []point) string {
	var out strings.Builder
	for _, p := range points {
		fmt.Fprintf(&out, "%.1f,%.1f ", f.x(p.at), f.y(min(p.value, f.most)))
	}
	return strings.TrimSpace(out.String())
}

// grid returns the lines behind the series with their numbers: of the values, and of
// the minutes.
func (f frame) grid() (lines []gridLine) {
	for i := range gridLines + 1 {
		value := f.most * float64(i) / gridLines
		lines = append(lines, gridLine{
			Path: fmt.Sprintf("M%d %.1fH%d", left, f.y(value), width-right),
			X:    left - 6, Y: f.y(value) + 4, Anchor: "end", Text: fmt.Sprintf("%g", value),
		})
	}
	const fiveMinutes = 300
	for at := 0.0; at <= f.seconds; at += fiveMinutes {
		lines = append(lines, gridLine{
			Path: fmt.Sprintf("M%.1f %dV%d", f.x(at), top, height-foot),
			X:    f.x(at), Y: height - foot + 16, Anchor: "middle", Text: fmt.Sprintf("%g min", at/60),
		})
	}
	return lines
}
