// Command dashboard writes the Grafana dashboard of ratelimitd to standard output.
//
// panels.go defines the panels. The command is a module of its own, because the service needs nothing from Grafana.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/grafana/grafana-foundation-sdk/go/units"
)

func main() {
	text, err := render()
	if err == nil {
		_, err = os.Stdout.Write(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// render returns the dashboard in Grafana's JSON.
func render() ([]byte, error) {
	made, err := build().Build()
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(made, "", "  ")
	return append(text, '\n'), err
}

// Names of variables, and how queries refer to them.
const (
	sourceVariable = "datasource"
	scope          = `job=~"$job", instance=~"$instance"`
	policyScope    = scope + `, policy=~"$policy"`
)

// build returns the dashboard in the schema that every Grafana reads; the next schema needs the latest Grafana.
func build() *dashboard.DashboardBuilder { //nolint:staticcheck // the SDK prefers the next schema
	b := dashboard.NewDashboardBuilder("ratelimitd"). //nolint:staticcheck // the same
								Uid("ratelimitd").
								Description("Decisions, callers beyond their limits, Cassandra, and the instances that decide together.").
								Tags([]string{"ratelimitd"}).
								Timezone("browser").
								Time("now-1h", "now").
								Refresh("30s").
								Tooltip(dashboard.DashboardCursorSyncCrosshair).
								WithVariable(dashboard.NewDatasourceVariableBuilder(sourceVariable).Label("Prometheus").Type("prometheus")).
								WithVariable(choice("job", "label_values(ratelimitd_build_info, job)")).
								WithVariable(choice("instance", `label_values(ratelimitd_build_info{job=~"$job"}, instance)`)).
								WithVariable(choice("policy", `label_values(ratelimitd_policy_limit_units{job=~"$job"}, policy)`))
	id := uint32(0)
	for _, r := range rows {
		id++
		b.WithRow(dashboard.NewRowBuilder(r.title).Id(id))
		for _, p := range r.panels {
			id++
			b.WithPanel(p.build().Id(id))
		}
	}
	return b
}

// Dimensions in Grafana's grid.
const (
	panelWidth  = 8 // a third
	panelHeight = 8
)

func source() common.DataSourceRef {
	kind, uid := "prometheus", "${"+sourceVariable+"}"
	return common.DataSourceRef{Type: &kind, Uid: &uid}
}

// choice returns a variable with the values that query finds; the default is all of them.
func choice(name, query string) *dashboard.QueryVariableBuilder {
	all, some := "All", "$__all"
	return dashboard.NewQueryVariableBuilder(name).
		Datasource(source()).
		Query(dashboard.StringOrMap{String: &query}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).
		Current(dashboard.VariableOption{
			Text:  dashboard.StringOrArrayOfString{String: &all},
			Value: dashboard.StringOrArrayOfString{String: &some},
		})
}

// panel is one graph.
type panel struct {
	title, about string
	unit         string
	queries      []query
}

// query is a group of lines, named by legend.
type query struct{ expr, legend string }

func (p *panel) build() *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().
		Title(p.title).Description(p.about).Unit(p.unit).
		Datasource(source()).
		Height(panelHeight).Span(panelWidth).
		LineWidth(1).FillOpacity(10).ShowPoints(common.VisibilityModeNever).
		AxisSoftMin(0). // else shares of 33 % and 34 % are at opposite ends
		Legend(common.NewVizLegendOptionsBuilder().
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if p.unit == units.Short {
		b.AxisSoftMax(1) // otherwise Grafana draws a line of zeros on a scale up to 100
	}
	if text := empty[p.title]; text != "" {
		b.NoValue(text) // instead of "No data"
	}
	for i, q := range p.queries {
		target := prometheus.NewDataqueryBuilder().
			Datasource(source()).Expr(q.expr).LegendFormat(q.legend).RefId(string(rune('A' + i)))
		if strings.HasPrefix(q.expr, "histogram_quantile(") {
			target.Exemplar(true) // a point for each trace that Prometheus has
		}
		b.WithTarget(target)
	}
	return b
}
