package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// File is the label of a file that is reloaded after any change.
type File string

// The files, as the label has them.
const (
	FilePolicies     File = "policies"
	FileCallers      File = "callers"
	FileCertificates File = "certificates"
)

// Certificate is one that this process shows others, or verifies others by.
type Certificate string

// The certificates, as the label has them.
const (
	CertificateServer      Certificate = "server"       // shown to clients
	CertificateClientCA    Certificate = "client_ca"    // of the authorities that clients are verified by, the first that expires
	CertificateCassandra   Certificate = "cassandra"    // shown to nodes
	CertificateCassandraCA Certificate = "cassandra_ca" // of the authorities that nodes are verified by, likewise
)

// processSeries tell of this process: its build, and the files that it goes by.
type processSeries struct {
	build      *prometheus.GaugeVec // version, go_version
	reloaded   *prometheus.GaugeVec // file
	reloadedAt *prometheus.GaugeVec // file
	expiry     *prometheus.GaugeVec // certificate
}

func newProcessSeries(auto factory) processSeries {
	return processSeries{
		build: auto.gauges("ratelimitd_build_info",
			"1, with what the program was built from, as `ratelimitd version` says it.", "version", "go_version"),
		reloaded: auto.gauges("ratelimitd_last_reload_successful",
			"1 if the file was taken when it was read last, at the start or later; 0 if it had mistakes, and the one before stays in force.",
			"file"),
		reloadedAt: auto.gauges("ratelimitd_last_reload_success_timestamp_seconds", "When the file that is in force was read.", "file"),
		expiry: auto.gauges("ratelimitd_certificate_expiry_timestamp_seconds",
			"When a certificate of this instance expires: server, which clients see, or cassandra, which nodes see; or the first "+
				"of the authorities that it verifies them by: client_ca, cassandra_ca.",
			"certificate"),
	}
}

// SetBuild says what the program was built from.
func (m *Metrics) SetBuild(version string) {
	m.process.build.WithLabelValues(version, runtime.Version()).Set(1)
}

// SetReloaded says whether a file was taken that was read now.
func (m *Metrics) SetReloaded(file File, taken bool) {
	m.process.reloaded.WithLabelValues(string(file)).Set(oneIf(taken))
	if taken {
		m.process.reloadedAt.WithLabelValues(string(file)).Set(float64(m.now().UnixMilli()) / 1000)
	}
}

// SetExpiry says when a certificate expires; a zero at: there is none.
func (m *Metrics) SetExpiry(of Certificate, at time.Time) {
	if !at.IsZero() {
		m.process.expiry.WithLabelValues(string(of)).Set(float64(at.Unix()))
	}
}
