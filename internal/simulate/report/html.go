package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"time"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"number": number, "count": count, "share": share, "stamp": stamp, "printable": printable,
	"since":  func(r *Report) string { return r.To.Sub(r.From).Round(time.Second).String() },
	"label":  func(i int) string { return fmt.Sprint("c", i%colors) },
	"spares": func(s Spare) string { return fmt.Sprintf("%.4g %%", 100*s.Share) },
	"plots":  plotsOf,
}).Parse(pageText))

// colors is the number of classes of lines in the page's style.
const colors = 6

// WriteHTML writes r as a page that contains its styles and plots, and loads nothing.
func (r *Report) WriteHTML(w io.Writer) error { return page.Execute(w, r) }

// plot is a drawing of a policy, as SVG.
type plot struct {
	Title string
	Note  string
	SVG   template.HTML // of numbers and escaped names
	Lines []string      // the names of the lines, in the order of colors
}

// plotsOf returns the plots of a policy.
func plotsOf(r *Report, p *Policy) []plot {
	all := []plot{requestsPlot(r, p), deniedPlot(r, p), callersPlot(r, p)}
	for i := range p.Limits {
		if len(p.Limits[i].Curve) > 0 {
			all = append(all, curvePlot(&p.Limits[i]))
		}
	}
	return append(all, timesPlot(p))
}

func requestsPlot(r *Report, p *Policy) plot {
	asked, denied := requestsOverTime(p)
	return overTimePlot(r, p, "Requests", []string{"all", "denied"}, [][]int64{asked, denied})
}

// requestsOverTime returns the number of requests in each bin, and of the denied ones among them.
func requestsOverTime(p *Policy) (asked, denied []int64) {
	return p.line(func(b *Bin) int64 { return b.Requests }), p.line(func(b *Bin) (n int64) {
		for i, by := range b.Denied {
			if i >= len(p.Limits) || !p.Limits[i].Shadow {
				n += by
			}
		}
		return n
	})
}

// line returns a number of each bin.
func (p *Policy) line(of func(*Bin) int64) []int64 {
	line := make([]int64, len(p.OverTime))
	for i := range p.OverTime {
		line[i] = of(&p.OverTime[i])
	}
	return line
}

func deniedPlot(r *Report, p *Policy) plot {
	var names []string
	var lines [][]int64
	add := func(name string, of func(*Bin) int64) {
		names, lines = append(names, name), append(lines, p.line(of))
	}
	for i := range p.Limits {
		add(p.Limits[i].Name, func(b *Bin) int64 { return b.Denied[i] })
	}
	if p.Blocked > 0 {
		add("block_for", func(b *Bin) int64 { return b.Denied[len(p.Limits)] })
	}
	if p.Refused > 0 {
		add(numberRules, func(b *Bin) int64 { return b.Denied[len(p.Limits)+1] })
	}
	if r.Compared {
		add("the other file", func(b *Bin) int64 { return b.Against })
	}
	return overTimePlot(r, p, "Denied, by limit", names, lines)
}

func callersPlot(r *Report, p *Policy) plot {
	callers := p.line(func(b *Bin) int64 { return b.Callers })
	made := overTimePlot(r, p, "Callers", []string{"callers"}, [][]int64{callers})
	made.Note += ", right to some 3 %"
	return made
}

func overTimePlot(r *Report, p *Policy, title string, names []string, lines [][]int64) plot {
	width := time.Duration(r.BinSeconds) * time.Second
	f := newFrame(lines...)
	if n := len(p.OverTime); n > 0 {
		from, to := p.OverTime[0].At, p.OverTime[n-1].At
		f.below(from.Format("2006-01-02 15:04"), to.Format("2006-01-02 15:04"))
	}
	for i, line := range lines {
		f.line(i, line)
	}
	return plot{Title: title, Note: "within " + shortest(width) + " each", SVG: f.svg(), Lines: names}
}

// shortest writes a duration without zeros at its end.
func shortest(d time.Duration) string {
	switch {
	case d >= 24*time.Hour && d%(24*time.Hour) == 0:
		return count(int64(d/(24*time.Hour)), "day", "days")
	case d >= time.Hour:
		return count(int64(d/time.Hour), "hour", "hours")
	case d >= time.Minute:
		return count(int64(d/time.Minute), "minute", "minutes")
	}
	return count(int64(d/time.Second), "second", "seconds")
}

func curvePlot(l *Limit) plot {
	denied, names := make([]int64, len(l.Curve)), make([]string, len(l.Curve))
	own := -1
	for i, t := range l.Curve {
		denied[i], names[i] = t.Denied, number(t.Number)
		if t.Number == l.Number {
			own = i
		}
	}
	f := newFrame(denied)
	f.line(0, denied)
	f.dots(denied, own, names)
	return plot{
		Title: "Denied, if " + l.Name + " were another number", Note: "the filled dot is the number in the file: " + number(l.Number),
		SVG: f.svg(), Lines: []string{"denied"},
	}
}

func timesPlot(p *Policy) plot {
	callers, names := make([]int64, len(p.HitTimes)), make([]string, len(p.HitTimes))
	for i, h := range p.HitTimes {
		callers[i] = h.Callers
		switch {
		case i+1 == len(p.HitTimes):
			names[i] = number(h.AtLeast) + " or more"
		case p.HitTimes[i+1].AtLeast == h.AtLeast+1:
			names[i] = number(h.AtLeast)
		default:
			names[i] = number(h.AtLeast) + " to " + number(p.HitTimes[i+1].AtLeast-1)
		}
	}
	f := newFrame(callers)
	f.bars(callers, names)
	return plot{
		Title: "How often callers are hit", Note: "callers, by how many of their requests are denied",
		SVG: f.svg(), Lines: []string{"callers"},
	}
}
