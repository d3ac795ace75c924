package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// The sizes of a plot, in its own units.
const (
	plotWidth, plotHeight = 720, 220
	plotLeft, plotBottom  = 70, 30
	plotTop, plotRight    = 12, 12
	gridLines             = 4
)

// frame draws into a rectangle with a scale from 0 to the largest value.
type frame struct {
	b    strings.Builder
	most float64
}

// newFrame returns a frame that all of lines fit into.
func newFrame(lines ...[]int64) *frame {
	most := int64(1)
	for _, line := range lines {
		for _, n := range line {
			most = max(most, n)
		}
	}
	f := &frame{most: roundUp(most)}
	for i := range gridLines + 1 {
		value := f.most * float64(i) / gridLines
		y := f.y(value)
		fmt.Fprintf(&f.b, `<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, plotLeft, y, plotWidth-plotRight, y)
		fmt.Fprintf(&f.b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`, plotLeft-8, y+4, scaleText(value))
	}
	return f
}

// roundUp returns the next number of the form 1, 2, 4, 6 or 8 times a power of ten.
func roundUp(most int64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(float64(most))))
	for _, step := range []float64{1, 2, 4, 6, 8} {
		if float64(most) <= step*power {
			return step * power
		}
	}
	return 10 * power
}

// scaleText returns the short form of a number at the scale.
func scaleText(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%g", v)
}

func (f *frame) y(value float64) float64 {
	return plotHeight - plotBottom - value/f.most*(plotHeight-plotBottom-plotTop)
}

// x returns the middle of column i of n.
func (f *frame) x(i, n int) float64 {
	return plotLeft + (float64(i)+.5)/float64(n)*(plotWidth-plotLeft-plotRight)
}

// below writes the ends of the time scale.
func (f *frame) below(from, to string) {
	fmt.Fprintf(&f.b, `<text x="%d" y="%d">%s</text>`, plotLeft, plotHeight-10, html.EscapeString(from))
	fmt.Fprintf(&f.b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, plotWidth-plotRight, plotHeight-10, html.EscapeString(to))
}

// line draws values in a color.
func (f *frame) line(color int, values []int64) {
	fmt.Fprintf(&f.b, `<polyline class="line c%d" points="`, color%colors)
	for i, v := range values {
		fmt.Fprintf(&f.b, "%.1f,%.1f ", f.x(i, len(values)), f.y(float64(v)))
	}
	f.b.WriteString(`"/>`)
}

// dots marks values, each with its name below. The dot with the index filled is filled.
func (f *frame) dots(values []int64, filled int, names []string) {
	for i, v := range values {
		class := "dot c0"
		if i == filled {
			class += " filled"
		}
		fmt.Fprintf(&f.b, `<circle class="%s" cx="%.1f" cy="%.1f" r="4"><title>%s: %s denied</title></circle>`,
			class, f.x(i, len(values)), f.y(float64(v)), html.EscapeString(names[i]), number(v))
		f.name(i, names)
	}
}

func (f *frame) name(i int, names []string) {
	fmt.Fprintf(&f.b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, f.x(i, len(names)), plotHeight-10, html.EscapeString(names[i]))
}

// bars draws values as bars, each with its name below and its number above.
func (f *frame) bars(values []int64, names []string) {
	const half = 24
	for i, v := range values {
		x, y := f.x(i, len(values)), f.y(float64(v))
		fmt.Fprintf(&f.b, `<rect class="bar c0" x="%.1f" y="%.1f" width="%d" height="%.1f"/>`, x-half, y, 2*half, plotHeight-plotBottom-y)
		fmt.Fprintf(&f.b, `<text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`, x, max(y-4, plotTop), number(v))
		f.name(i, names)
	}
}

func (f *frame) svg() template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img">%s</svg>`, plotWidth, plotHeight, f.b.String()))
}
