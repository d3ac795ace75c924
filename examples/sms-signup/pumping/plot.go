package main

import (
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/template"
	"time"
)

// hours of the week, each a point of a curve.
const hours = int(week / time.Hour)

// The size of a panel, and where it lies, in pixels.
const (
	panelLeft, panelWidth    = 64, 840
	moneyTop, moneyHeight    = 84, 240
	deniedTop, deniedHeight  = 374, 80
	attacksTop, attackHeight = 472, 16
)

// panel is one pair of axes.
type panel struct {
	Top, Height int
	Title       string
	Most        float64 // what its top stands for
	Step        float64 // between lines
}

// fit has the panel reach beyond all values, by lines at round numbers.
func (p *panel) fit(values ...[]float64) {
	most := slices.Max(slices.Concat(values...))
	for p.Step = 1; most/p.Step > 5; {
		if first := p.Step / math.Pow10(int(math.Log10(p.Step))); math.Round(first) == 2 {
			p.Step *= 2.5
		} else {
			p.Step *= 2
		}
	}
	p.Most = p.Step * max(1, math.Ceil(most/p.Step))
}

// Y returns how far down value lies.
func (p *panel) Y(value float64) float64 {
	return float64(p.Top) + float64(p.Height)*(1-value/p.Most)
}

// Lines returns the values that have one.
func (p *panel) Lines() (values []float64) {
	for v := 0.0; v <= p.Most; v += p.Step {
		values = append(values, v)
	}
	return values
}

// Area returns the outline of values by the hour, as steps above the axis.
func (p *panel) Area(values []float64) string {
	var path strings.Builder
	fmt.Fprintf(&path, "M%d %.1f", panelLeft, p.Y(0))
	for hour, value := range values {
		fmt.Fprintf(&path, "V%.1fH%.1f", p.Y(value), x(time.Duration(hour+1)*time.Hour))
	}
	fmt.Fprintf(&path, "V%.1fZ", p.Y(0))
	return path.String()
}

// x returns how far right a moment of the week lies.
func x(at time.Duration) float64 { return panelLeft + panelWidth*at.Hours()/week.Hours() }

// span is when somebody attacks, as a bar below the panels.
type span struct {
	Name     string
	From, To float64
	Y        int
}

//go:embed week.svg.tmpl
var picture string

// draw writes the week as one SVG: what was spent by the hour, without limits and with all of them, and
// how many requests of honest users were denied.
func (c *comparison) draw(out io.Writer) error {
	without, with, denied := make([]float64, hours), make([]float64, hours), make([]float64, hours)
	for i := range c.asks {
		a, allowed := &c.asks[i], c.whole.allowed[i]
		hour := min(int(a.at.Sub(monday)/time.Hour), hours-1) // who asks again may do so after midnight
		eur := float64(a.cost) / thousandths
		without[hour] += eur
		switch {
		case allowed:
			with[hour] += eur
		case a.who == honest:
			denied[hour]++
		}
	}
	money := &panel{Top: moneyTop, Height: moneyHeight, Title: "EUR an hour for messages"}
	money.fit(without, with)
	denials := &panel{Top: deniedTop, Height: deniedHeight, Title: "Requests of honest users that were denied, an hour"}
	denials.fit(denied)
	return template.Must(template.New("week").Funcs(template.FuncMap{"day": day}).Parse(picture)).Execute(out, map[string]any{
		"Seed": c.seed, "Left": panelLeft, "Right": panelLeft + panelWidth, "Days": []int{0, 1, 2, 3, 4, 5, 6},
		"Money": money, "Denials": denials, "Panels": []*panel{money, denials},
		"Without": without, "With": with, "Denied": denied, "Attacks": c.attacks(),
	})
}

// attacks returns when each attacker asks first and last.
func (c *comparison) attacks() (spans []span) {
	for _, by := range []who{pumper, stuffer} {
		its := slices.DeleteFunc(slices.Clone(c.asks), func(a ask) bool { return a.who != by })
		from, to := its[0].at.Sub(monday), its[len(its)-1].at.Sub(monday)
		spans = append(spans, span{whoNames[by], x(from), x(to), attacksTop + len(spans)*attackHeight})
	}
	return spans
}

// column is a day in the picture.
type column struct {
	Name      string
	X, Middle float64
}

func day(n int) column {
	at := time.Duration(n) * 24 * time.Hour
	return column{monday.Add(at).Weekday().String(), x(at), x(at + 12*time.Hour)}
}
