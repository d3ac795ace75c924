// Package monitoring_test compares the alerts and the dashboard of this folder with the
// existing metrics, and with the runbook.
package monitoring_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.yaml.in/yaml/v4"
)

const (
	reference = "../../docs/reference/metrics.md"
	runbook   = "../../docs/runbook.md"
)

var update = flag.Bool("update", false, "update the chart's copies")

// TestChartHasCopies checks that the chart has copies of this folder's alerts and dashboard. Links would be
// lost in archives, and on systems without links.
func TestChartHasCopies(t *testing.T) {
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		original, copied := read(t, name), filepath.Join("../helm/ratelimitd/monitoring", name)
		if *update {
			if err := os.WriteFile(copied, original, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(read(t, copied), original) {
			t.Errorf("%s differs from %s: run go test ./deploy/monitoring -update", copied, name)
		}
	}
}

// alert is one of alerts.yaml.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []alert `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(read(t, "alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("found %d alerts", len(all))
	}
	return all
}

// panelQueries returns the queries of the dashboard's panels.
func panelQueries(t *testing.T) (all []string) {
	t.Helper()
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(read(t, "dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d queries", len(all))
	}
	return all
}

// variableQueries returns the queries for the dashboard's variables, which are not PromQL.
func variableQueries(t *testing.T) (all []string) {
	t.Helper()
	var board struct {
		Templating struct {
			List []struct{ Type, Query string }
		}
	}
	if err := json.Unmarshal(read(t, "dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	for _, variable := range board.Templating.List {
		if variable.Type == "query" {
			all = append(all, variable.Query)
		}
	}
	if len(all) == 0 {
		t.Fatal("found no variables")
	}
	return all
}

// metricLabels returns the labels of every metric that an instance exports, or that Prometheus adds.
func metricLabels(t *testing.T) map[string][]string {
	t.Helper()
	known := map[string][]string{"up": nil}
	rows := regexp.MustCompile("(?m)^\\| `(ratelimitd_\\w+)` \\| (\\w+) \\| ([^|]*) \\|")
	for _, m := range rows.FindAllStringSubmatch(string(read(t, reference)), -1) {
		labels := strings.Split(strings.TrimSpace(m[3]), ", ")
		known[m[1]] = labels
		if m[2] == "histogram" {
			delete(known, m[1])
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				known[m[1]+part] = append([]string{"le"}, labels...)
			}
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		known[family.GetName()] = nil
	}
	return known
}

var (
	metricName = regexp.MustCompile(`\b((?:ratelimitd|process|go)_[a-z_]+|up)\b(?:\{([^}]*)\})?`)
	labelName  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
)

// TestMetricsExist looks for every metric and label in an alert or a panel.
func TestMetricsExist(t *testing.T) {
	known := metricLabels(t)
	queries := append(panelQueries(t), variableQueries(t)...)
	for _, a := range alerts(t) {
		queries = append(queries, a.Expr)
	}
	for _, expr := range queries {
		found := metricName.FindAllStringSubmatch(expr, -1)
		if len(found) == 0 {
			t.Errorf("%s uses no metric", expr)
		}
		for _, m := range found {
			labels, exists := known[m[1]]
			if !exists {
				t.Errorf("%s: there is no metric %s", expr, m[1])
				continue
			}
			for _, label := range labelName.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(append([]string{"job", "instance"}, labels...), label[1]) {
					t.Errorf("%s: %s has no label %s", expr, m[1], label[1])
				}
			}
		}
	}
}

// TestAlertsAreInTheRunbook looks for the section to which an alert links, and for the alert's row, which must link there,
// too.
func TestAlertsAreInTheRunbook(t *testing.T) {
	text := string(read(t, runbook))
	sections := make(map[string]bool) // by anchor
	for _, section := range strings.Split(text, "\n## ")[1:] {
		heading, _, _ := strings.Cut(section, "\n")
		sections[strings.ReplaceAll(strings.ToLower(heading), " ", "-")] = true
	}
	for _, a := range alerts(t) {
		_, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "docs/runbook.md#")
		if !sections[anchor] {
			t.Errorf("%s links to %q, but the runbook has no such section", a.Alert, a.Annotations["runbook_url"])
		}
		row := regexp.MustCompile("(?m)^\\| `" + a.Alert + "` \\|.*\\(#" + regexp.QuoteMeta(anchor) + "\\) \\|$")
		if !row.MatchString(text) {
			t.Errorf("%s: the runbook's table has no row that links to %q", a.Alert, anchor)
		}
		if severity := a.Labels["severity"]; severity != "page" && severity != "ticket" || a.Annotations["summary"] == "" {
			t.Errorf("%s has severity %q and summary %q", a.Alert, severity, a.Annotations["summary"])
		}
	}
}

// TestAlertsFire runs the tests of the alerts with promtool. Each alert must have one.
func TestAlertsFire(t *testing.T) {
	promtool(t, "check", "rules", "alerts.yaml")
	fires := make(map[string]bool)
	for _, name := range []string{"alerts_test.yaml", "alerts_hours_test.yaml"} {
		promtool(t, "test", "rules", name)
		var file struct {
			Tests []struct {
				Alerts []struct {
					Name     string `yaml:"alertname"`
					Expected []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		if err := yaml.Unmarshal(read(t, name), &file); err != nil {
			t.Fatal(err)
		}
		for _, test := range file.Tests {
			for _, a := range test.Alerts {
				fires[a.Name] = fires[a.Name] || len(a.Expected) > 0
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] {
			t.Errorf("%s fires in no test", a.Alert)
		}
	}
}

// TestPanelsCanBeQueried parses the queries of the dashboard with Prometheus.
func TestPanelsCanBeQueried(t *testing.T) {
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*", "$policy", ".*")
	text := "groups:\n  - name: panels\n    rules:\n"
	for i, expr := range panelQueries(t) {
		text += fmt.Sprintf("      - {record: 'panel:%d', expr: %q}\n", i, variables.Replace(expr))
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// promtool runs Prometheus's tool, which is in Debian's package prometheus. With CI=true it must exist.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
