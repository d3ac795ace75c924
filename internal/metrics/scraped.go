package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// scraped is a collector whose values are read at each scrape.
type scraped struct {
	figures []figure
	collect func(to chan<- prometheus.Metric)
}

// figure is a metric of a scraped.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// figure adds a metric, which is a counter if its name ends in _total, and a gauge otherwise.
func (s *scraped) figure(name, help string, labels ...string) figure {
	f := figure{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
	if strings.HasSuffix(name, "_total") {
		f.kind = prometheus.CounterValue
	}
	s.figures = append(s.figures, f)
	return f
}

// is returns a sample of f.
func (f figure) is(value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
}

// Describe sends the descriptions.
func (s *scraped) Describe(to chan<- *prometheus.Desc) {
	for _, f := range s.figures {
		to <- f.desc
	}
}

// Collect sends the current values.
func (s *scraped) Collect(to chan<- prometheus.Metric) { s.collect(to) }

// oneIf returns 1 if so is true, else 0.
func oneIf(so bool) float64 {
	if so {
		return 1
	}
	return 0
}
