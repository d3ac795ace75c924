// Package report writes measurements as JSON, as a table and as charts, and compares them with one of the peers.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Baseline is the peer with which others are compared.
const Baseline = "redis_rate"

// Run is one measurement.
type Run struct {
	Peer   string `json:"peer"`
	Policy string `json:"policy"`
	Keys   string `json:"keys"`
	// Instances is how many processes of the peer shared the load and the store.
	Instances int `json:"instances"`
	// Rate is how many calls were due in a second in an open loop; 0: a closed loop.
	Rate        float64 `json:"rate,omitempty"`
	Connections int     `json:"connections"`
	Batch       int     `json:"batch"` // decisions a call
	Seconds     float64 `json:"seconds"`
	Sent        int64   `json:"sent"`
	Allowed     int64   `json:"allowed"`
	Denied      int64   `json:"denied"`
	Failed      int64   `json:"failed"`
	AnswerBytes float64 `json:"answer_bytes"` // per call, including headers
	Latency     Latency `json:"latency_us"`
	CPU         CPU     `json:"cpu_seconds"`
	// WrongDenials counts calls that were denied although their key certainly had room, and OverAdmitted those allowed beyond
	// the limit of a window, including the warm-up. They are unknown for batches.
	WrongDenials int64 `json:"wrong_denials"`
	OverAdmitted int64 `json:"over_admitted"`
	// Wrong describes calls that were wrongly allowed or denied; empty if there were none.
	Wrong string `json:"wrong,omitempty"`
}

// Latency is the latency of calls, in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

// CPU is in seconds, user's and system's.
type CPU struct {
	Service float64 `json:"service"`
	Store   float64 `json:"store"`
	Load    float64 `json:"load"`
}

// Subject names the peer, with the numbers of its instances, if there are several, and connections.
func (r *Run) Subject() string {
	if r.Instances > 1 {
		return fmt.Sprintf("%s (%d), %d", r.Peer, r.Instances, r.Connections)
	}
	return fmt.Sprintf("%s, %d", r.Peer, r.Connections)
}

// PerSecond returns the decisions a second, without failed calls.
func (r *Run) PerSecond() float64 { return over(float64(r.Allowed+r.Denied), r.Seconds) }

// PerCPUSecond returns the decisions a second of processor time of service and store together.
func (r *Run) PerCPUSecond() float64 {
	return over(float64(r.Allowed+r.Denied), r.CPU.Service+r.CPU.Store)
}

// PerDecision returns seconds divided by the decisions, in microseconds.
func (r *Run) PerDecision(seconds float64) float64 {
	return over(seconds*1e6, float64(r.Allowed+r.Denied))
}

func over(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// Report has all runs, and the machine.
type Report struct {
	Started  time.Time `json:"started"`
	Seed     uint64    `json:"seed"`
	Machine  string    `json:"machine"`
	Version  string    `json:"version"`
	Settings string    `json:"settings"`
	Skipped  []string  `json:"skipped,omitempty"` // peers with the reasons
	Runs     []*Run    `json:"runs"`
}

// Ratio returns of(run) as a multiple of the baseline's with as many instances and connections, under the same policy, keys and kind of
// loop; 0 if there is none.
func (r *Report) Ratio(run *Run, of func(*Run) float64) float64 {
	for _, base := range r.Runs {
		if base.Peer == Baseline && base.Instances == run.Instances && base.Connections == run.Connections &&
			base.Policy == run.Policy && base.Keys == run.Keys && (base.Rate > 0) == (run.Rate > 0) {
			return over(of(run), of(base))
		}
	}
	return 0
}

// Write writes results.json, table.md and a chart for each policy into a folder.
func (r *Report) Write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	err := write(folder, "results.json", func(to io.Writer) error {
		encoder := json.NewEncoder(to)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	})
	err = errors.Join(err, write(folder, "table.md", r.Table))
	for _, policy := range r.policies() {
		err = errors.Join(err, write(folder, policy+".svg", func(to io.Writer) error { return r.Chart(to, policy) }))
	}
	return err
}

// write creates a file and lets content fill it.
func write(folder, name string, content func(io.Writer) error) error {
	file, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		return err
	}
	return errors.Join(content(file), file.Close())
}

// policies returns the policies of the runs, in their order.
func (r *Report) policies() []string {
	return distinct(r.Runs, func(run *Run) string { return run.Policy })
}

// distinct returns the values of of, without repetitions.
func distinct(runs []*Run, of func(*Run) string) (values []string) {
	seen := make(map[string]bool)
	for _, run := range runs {
		if value := of(run); !seen[value] {
			seen[value] = true
			values = append(values, value)
		}
	}
	return values
}
