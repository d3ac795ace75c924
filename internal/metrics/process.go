package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// File is the name of a file that is reloaded after any change.
type File string

// The values of the label file.
const (
	FilePolicies     File = "policies"
	FileCallers      File = "callers"
	FileCertificates File = "certificates"
)

// Certificate is a certificate that this process shows, or by which it verifies others.
type Certificate string

// The values of the label certificate.
const (
	CertificateServer      Certificate = "server"       // shown to clients
	CertificateClientCA    Certificate = "client_ca"    // the first authority of clients that expires
	CertificateCassandra   Certificate = "cassandra"    // shown to nodes
	CertificateCassandraCA Certificate = "cassandra_ca" // the first authority of nodes that expires
)

// processSeries are the metrics of this process: its build, and its files.
type processSeries struct {
	build      *prometheus.GaugeVec // version, go_version
	reloaded   *prometheus.GaugeVec // file
	reloadedAt *prometheus.GaugeVec // file
	expiry     *prometheus.GaugeVec // certificate
}

func newProcessSeries(auto factory) processSeries {
	return processSeries{
		build: auto.gauges("ratelimitd_build_info",
			"1, labelled by the versions of the program and of Go, as printed by `ratelimitd version`.", "version", "go_version"),
		reloaded: auto.gauges("ratelimitd_last_reload_successful",
			"1 if the last read of the file, at the start or later, succeeded; 0 if it had mistakes, so that the earlier one stays in force.",
			"file"),
		reloadedAt: auto.gauges("ratelimitd_last_reload_success_timestamp_seconds",
			"Time when the version of the file that is in force was read.", "file"),
		expiry: auto.gauges("ratelimitd_certificate_expiry_timestamp_seconds",
			"Time when a certificate expires: server, which clients see; cassandra, which nodes see; or the first one of the "+
				"authorities that this instance verifies clients (client_ca) and nodes (cassandra_ca) by.",
			"certificate"),
	}
}

// SetBuild sets the version of the program.
func (m *Metrics) SetBuild(version string) {
	m.process.build.WithLabelValues(version, runtime.Version()).Set(1)
}

// SetReloaded sets whether the last read of a file was successful.
func (m *Metrics) SetReloaded(file File, taken bool) {
	m.process.reloaded.WithLabelValues(string(file)).Set(oneIf(taken))
	if taken {
		m.process.reloadedAt.WithLabelValues(string(file)).Set(float64(m.now().UnixMilli()) / 1000)
	}
}

// SetExpiry sets when a certificate expires. A zero at means that there is none.
func (m *Metrics) SetExpiry(of Certificate, at time.Time) {
	if !at.IsZero() {
		m.process.expiry.WithLabelValues(string(of)).Set(float64(at.Unix()))
	}
}
