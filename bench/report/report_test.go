package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func example() *Report {
	return &Report{Machine: "2 cores", Version: "ratelimitd 1", Settings: "6s of zipf", Seed: 7, Runs: []*Run{
		{Peer: Baseline, Instances: 1, Connections: 63, Policy: "sms-send", Keys: "zipf",
			Seconds: 2, Sent: 1010, Allowed: 300, Denied: 700, Failed: 10,
			CPU: CPU{Service: 1.5, Store: .5, Load: .25}, Latency: Latency{P50: 500, P99: 2000, P999: 3000, Max: 123456}},
		{Peer: Baseline, Instances: 1, Connections: 63, Policy: "sms-send", Keys: "zipf",
			Seconds: 2, Rate: 250, Sent: 500, Allowed: 500,
			Latency: Latency{P99: 1000}},
		{Peer: "embedded", Instances: 1, Connections: 63, Policy: "sms-send", Keys: "zipf",
			Seconds: 1, Sent: 1500, Denied: 1500, CPU: CPU{Service: .5}},
		{Peer: "embedded", Instances: 1, Connections: 63, Policy: "sms-send", Keys: "zipf",
			Seconds: 1, Rate: 750, Sent: 750, Allowed: 750,
			Latency: Latency{P99: 1500}},
		{Peer: "a <b> & c", Instances: 2, Connections: 63, Policy: "api", Keys: "hot",
			Seconds: 1, Sent: 1, Allowed: 1, Wrong: "more than must be"},
		{Peer: "shared", Instances: 3, Connections: 63, Policy: "api", Keys: "hot",
			Seconds: 1, Sent: 800, Denied: 800, WrongDenials: 193, OverAdmitted: 2},
		{Peer: Baseline, Instances: 1, Connections: 63, Policy: "api", Keys: "hot", Seconds: 1, Sent: 4000, Denied: 4000},
		{Peer: Baseline, Instances: 3, Connections: 600, Policy: "api", Keys: "hot", Seconds: 1, Sent: 10, Denied: 10},
		{Peer: Baseline, Instances: 3, Connections: 63, Policy: "api", Keys: "hot", Seconds: 1, Sent: 1600, Denied: 1600},
		{Peer: "batches", Instances: 1, Connections: 63, Batch: 100, Policy: "api", Keys: "hot",
			Seconds: 1, Sent: 4000, Denied: 4000, OverAdmitted: 9},
	}}
}

func TestArithmetic(t *testing.T) {
	r := example()
	base, half, embedded, embeddedHalf, alone := r.Runs[0], r.Runs[1], r.Runs[2], r.Runs[3], r.Runs[4]
	p99 := func(run *Run) float64 { return run.Latency.P99 }
	for _, test := range []struct {
		what      string
		got, want float64
	}{
		{"decisions a second, what failed left out", base.PerSecond(), 500},
		{"a CPU second of service and store, the load's left out", base.PerCPUSecond(), 500},
		{"a CPU second", embedded.PerCPUSecond(), 3000},
		{"without a CPU time", half.PerCPUSecond(), 0},
		{"µs a decision", base.PerDecision(base.CPU.Service), 1500},
		{"ratio a second", r.Ratio(embedded, (*Run).PerSecond), 3},
		{"ratio a CPU second", r.Ratio(embedded, (*Run).PerCPUSecond), 6},
		{"ratio of the baseline", r.Ratio(base, (*Run).PerSecond), 1},
		{"ratio to what is like it: an open loop", r.Ratio(embeddedHalf, p99), 1.5},
		{"ratio to as many instances", r.Ratio(r.Runs[5], (*Run).PerSecond), .5},
		{"ratio to nothing", r.Ratio(alone, (*Run).PerSecond), 0},
	} {
		if test.got != test.want {
			t.Errorf("%s: %v, want %v", test.what, test.got, test.want)
		}
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := example().Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| redis_rate | zipf |         1 |          63 |         500 | 1.00 |             500 | 1.00 |           1500 |   500 |  250 |" +
			"   0.50 |   0 | 2.00 |  3.00 | 123 |      30.0 |     10 |             0 |          0 |",
		"| embedded   | zipf |         1 |          63 |        1500 | 3.00 |            3000 | 6.00 |",
		"| embedded   | zipf |         1 |          63 |         750 |              0 |     0 |      0 |   0 | 1.50 | 1.50 |",
		"| shared     | hot  |         3 |          63 |         800 | 0.50 |",
		"|           193 |          2 |",
		"|             – |          – |",
		"WRONG: a <b> & c (2), 63, api, hot: more than must be",
	} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("the table has no %q:\n%s", row, out.String())
		}
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if columns := strings.Count(line, " |"); columns != 0 && columns != len(closedColumns) && columns != len(openColumns) {
			t.Errorf("%d columns in %q", columns, line)
		}
	}
}

func TestFilesAreWellFormed(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "results")
	if err := example().Write(folder); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(folder, "results.json"))
	var back Report
	if err != nil || json.Unmarshal(data, &back) != nil || len(back.Runs) != len(example().Runs) || *back.Runs[0] != *example().Runs[0] {
		t.Errorf("results.json: %s, %v", data, err)
	}
	// An open loop has no bar, because its rate is fixed.
	for name, bars := range map[string]int{"sms-send.svg": 2, "api.svg": 6} {
		chart, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := count(t, chart, "rect"); got != bars {
			t.Errorf("%s has %d bars, want %d", name, got, bars)
		}
	}
}

// count returns how many elements of a name a well-formed document has.
func count(t *testing.T, document []byte, name string) (found int) {
	t.Helper()
	for decoder := xml.NewDecoder(bytes.NewReader(document)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if start, is := token.(xml.StartElement); is && start.Name.Local == name {
			found++
		}
	}
}

// The best peer has the longest bar, and the others are in proportion.
func TestBarsAreInProportion(t *testing.T) {
	r := example()
	const most = 3000
	if full, part := r.bar(r.Runs[2], 0, most), r.bar(r.Runs[0], 0, most); full.Length != width-left-right || part.Length != full.Length/6 {
		t.Errorf("bars of %d and %d, want %d and a sixth of that", full.Length, part.Length, width-left-right)
	}
}
