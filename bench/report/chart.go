package report

import (
	"html/template"
	"io"
)

// The dimensions of a chart, in pixels.
const (
	width, left, right = 720, 150, 120 // names are at the left, numbers at the right of bars
	barHeight, pitch   = 13, 17        // of a bar, and from one to the next
	titleHeight        = 36
	groupHeight        = 26 // of a distribution's name, above its bars
)

// Colours and text are legible on white and on black, because the picture does not know its page.
var svg = template.Must(template.New("chart").Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{.Width}} {{.Height}}" font-family="sans-serif" font-size="11" fill="#808080">
<text x="8" y="20" font-size="13" font-weight="bold">{{.Title}}</text>
{{range .Groups}}<text x="8" y="{{.Y}}" font-weight="bold">{{.Name}}</text>
{{range .Bars}}<text x="{{.NameX}}" y="{{.TextY}}" text-anchor="end">{{.Peer}}</text>` +
		`<rect x="{{.X}}" y="{{.Y}}" width="{{.Length}}" height="{{.Height}}" fill="{{.Colour}}"/>` +
		`<text x="{{.ValueX}}" y="{{.TextY}}">{{.Value}}</text>
{{end}}{{end}}</svg>
`))

type group struct {
	Name string
	Y    int
	Bars []bar
}

type bar struct {
	Peer, Colour, Value   string
	NameX, X, Y, Length   int
	ValueX, TextY, Height int
}

// Chart writes a chart as SVG: decisions a CPU second under a policy, by distribution and peer.
func (r *Report) Chart(to io.Writer, policy string) error {
	most, runs := 0.0, []*Run(nil)
	for _, run := range r.Runs {
		if run.Policy == policy && run.Rate == 0 {
			runs = append(runs, run)
			most = max(most, run.PerCPUSecond())
		}
	}
	y := titleHeight
	var groups []group
	for _, keys := range distinct(runs, func(run *Run) string { return run.Keys }) {
		g := group{Name: keys, Y: y + 10}
		for _, run := range runs {
			if run.Keys == keys {
				g.Bars = append(g.Bars, r.bar(run, y, most))
				y += pitch
			}
		}
		groups = append(groups, g)
		y += groupHeight - pitch
	}
	return svg.Execute(to, map[string]any{
		"Width": width, "Height": y, "Groups": groups,
		"Title": "Decisions per CPU second of service and store, " + policy + " (in brackets: as a multiple of " + Baseline + "'s)",
	})
}

func (r *Report) bar(run *Run, y int, most float64) bar {
	length := int(over(run.PerCPUSecond(), most) * (width - left - right))
	colour := "#0072b2" // distinguishable for the colour-blind
	switch run.Peer {
	case Baseline:
		colour = "#d55e00"
	case "bare", "go-limiter":
		colour = "#999999"
	}
	return bar{
		Peer: run.Subject(), Colour: colour, Value: number(run.PerCPUSecond()) + " (" + times(r.Ratio(run, (*Run).PerCPUSecond)) + ")",
		NameX: left - 6, X: left, Y: y, Length: length, ValueX: left + length + 6, TextY: y + barHeight - 3, Height: barHeight,
	}
}
