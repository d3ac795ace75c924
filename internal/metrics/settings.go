package metrics

import "github.com/prometheus/client_golang/prometheus"

// NewSettings returns a collector of the number of other instances that disagree about each setting, as returned by
// disagreements.
func NewSettings(disagreements func() map[string]int) prometheus.Collector {
	s := new(scraped)
	disagree := s.figure("ratelimitd_settings_disagree",
		"Other instances whose value of a setting differs, although all must have the same: a flag, a member of a policy, "+
			"or the mapping of a domain of Envoy.",
		"setting")
	s.collect = func(to chan<- prometheus.Metric) {
		for setting, instances := range disagreements() {
			to <- disagree.is(float64(instances), setting)
		}
	}
	return s
}
