package main

import (
	_ "embed"
	"io"
	"text/template"
)

//go:embed attacks.svg.tmpl
var picture string

// The picture's dimensions, in pixels.
const (
	rowHeight  = 34
	barsLeft   = 330
	barsWidth  = 420
	firstRow   = 84
	pictureEnd = 30
)

// row is an attack in the picture.
type row struct {
	*outcome
	Y           int
	Asked, Sent float64 // widths of its bars
}

// Name, AskedFor and Got are texts in the picture.
func (r row) Name() string  { return r.name }
func (r row) AskedFor() int { return r.asked }
func (r row) Got() int      { return r.sent }

// draw writes the codes that the attackers asked for and got, as one SVG.
func draw(out io.Writer, all []*outcome) error {
	most := 1
	for _, o := range all {
		most = max(most, o.asked)
	}
	rows := make([]row, len(all))
	for i, o := range all {
		width := func(n int) float64 { return float64(barsWidth*n) / float64(most) }
		rows[i] = row{o, firstRow + i*rowHeight, width(o.asked), width(o.sent)}
	}
	return template.Must(template.New("attacks").Parse(picture)).Execute(out, map[string]any{
		"Rows": rows, "Left": barsLeft, "Height": firstRow + len(all)*rowHeight + pictureEnd,
	})
}
