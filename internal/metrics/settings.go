package metrics

import "github.com/prometheus/client_golang/prometheus"

// settings publishes about which settings other instances disagree with this one.
type settings struct {
	disagreements func() map[string]int
	disagree      *prometheus.Desc
}

// NewSettings returns what publishes how many other instances disagree about each setting: what
// disagreements says at each scrape.
func NewSettings(disagreements func() map[string]int) prometheus.Collector {
	opts := prometheus.Opts{
		Name: "ratelimitd_settings_disagree",
		Help: "Other instances that have another value of a setting which all must have the same: a flag, a member of a policy, " +
			"or what a domain of Envoy's is mapped to.",
	}
	return &settings{disagreements, prometheus.NewDesc(opts.Name, opts.Help, []string{"setting"}, nil)}
}

// Describe sends the description.
func (s *settings) Describe(to chan<- *prometheus.Desc) { to <- s.disagree }

// Collect sends the numbers as they are now.
func (s *settings) Collect(to chan<- prometheus.Metric) {
	for setting, instances := range s.disagreements() {
		to <- prometheus.MustNewConstMetric(s.disagree, prometheus.GaugeValue, float64(instances), setting)
	}
}
