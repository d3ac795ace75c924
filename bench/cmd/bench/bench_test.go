package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/bench/policy"
	"github.com/ratelimitd/ratelimitd/bench/report"
)

func TestChoosing(t *testing.T) {
	s, err := parse(strings.Fields("-peers embedded,redis_rate -instances 1,3 -connections 63,600 -keys hot,zipf -duration 1s"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(s.peers); !slices.Equal(got, []string{"embedded", "redis_rate"}) {
		t.Errorf("peers %v", got)
	}
	if !slices.Equal(s.instances, []int{1, 3}) || !slices.Equal(s.connections, []int{63, 600}) {
		t.Errorf("instances %v, connections %v", s.instances, s.connections)
	}
	if len(s.keys) != 2 || s.keys[0].String() != "hot" || s.keys[1].String() != "zipf" || s.duration != time.Second {
		t.Errorf("keys %v, %v", s.keys, s.duration)
	}
	for _, wrong := range []string{"-peers redis", "-keys cold", "-peers ,", "-instances 0", "-instances 1,", "-connections 0", "-unknown"} {
		if _, err := parse(strings.Fields(wrong), io.Discard); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

func TestAllPeersAreMeasuredByDefault(t *testing.T) {
	s, err := parse(nil, io.Discard)
	if err != nil || len(s.peers) != len(allPeers()) || len(s.keys) != len(load.Distributions()) {
		t.Errorf("%v, %v", s, err)
	}
	if !slices.Equal(s.instances, []int{3}) {
		t.Errorf("instances %v", s.instances)
	}
	if !slices.Contains(names(s.peers), report.Baseline) {
		t.Errorf("the baseline is %s, which is not among the peers", report.Baseline)
	}
	if _, err := load.ParseKeys(halved); err != nil {
		t.Error(err)
	}
}

// Only peers with a shared store have several instances. The baseline is measured before the peers compared with it.
func TestNumbersOfInstances(t *testing.T) {
	s, err := parse(strings.Fields("-instances 1,3 -connections 63,600 -keys hot -peers redis_rate,bare,cassandra"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range (&bench{settings: s, policies: policy.List{{Name: "api"}}}).jobs() {
		got = append(got, fmt.Sprint(j.peer.name, " ", j.instances, " ", j.connections))
	}
	want := []string{
		"redis_rate 1 63", "redis_rate 3 63", "bare 1 63", "cassandra 1 63", "cassandra 3 63",
		"redis_rate 1 600", "redis_rate 3 600", "bare 1 600", "cassandra 1 600", "cassandra 3 600",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Open loops run at half of the peer's own rate and, if it is faster than the baseline, at half of the baseline's.
func TestOpenRates(t *testing.T) {
	b := &bench{baseline: make(map[likeness]float64)}
	zipf, unique := keys(t, halved), keys(t, "unique")
	for _, step := range []struct {
		peer      peer
		instances int
		policy    string
		keys      load.Keys
		closed    float64
		want      []float64
	}{
		{peer{name: "early"}, 1, "api", zipf, 9001, []float64{4500}},
		{peer{name: report.Baseline}, 1, "api", zipf, 8000, []float64{4000}},
		{peer{name: "quicker"}, 1, "api", zipf, 9001, []float64{4500, 4000}},
		{peer{name: "more"}, 3, "api", zipf, 9001, []float64{4500}},
		{peer{name: "slower"}, 1, "api", zipf, 6000, []float64{3000}},
		{peer{name: "quicker"}, 1, "other", zipf, 9000, []float64{4500}},
		{peer{name: "quicker"}, 1, "api", unique, 9000, nil},
		{peer{name: "batches", batch: 100}, 1, "api", zipf, 9000, nil},
		{peer{name: "dead"}, 1, "api", zipf, 0, nil},
	} {
		j := job{peer: &step.peer, instances: step.instances, policy: policy.Policy{Name: step.policy}, keys: step.keys}
		if got := b.openRates(j, step.closed); !slices.Equal(got, step.want) {
			t.Errorf("%s, %s, %v after %v: %v, want %v", step.peer.name, step.policy, step.keys, step.closed, got, step.want)
		}
	}
}

// A node that was just started has not compiled anything yet, so the first service on it settles longer. The others settle
// once, with their first keys.
func TestTheFirstOnCassandraSettlesLonger(t *testing.T) {
	zipf, unique := keys(t, "zipf"), keys(t, "unique")
	b := &bench{settings: &settings{
		settling: time.Minute, warm: 5 * time.Minute, instances: []int{1, 3}, connections: []int{63, 600}, keys: []load.Keys{zipf, unique},
	}}
	memory, store := &peer{}, &peer{cassandra: true}
	for i, step := range []struct {
		peer        *peer
		instances   int
		connections int
		keys        load.Keys
		want        time.Duration
	}{
		{memory, 1, 63, zipf, 0},
		{store, 1, 63, zipf, 5 * time.Minute},
		{store, 3, 63, zipf, 0},
		{store, 1, 600, zipf, 0},
		{store, 1, 63, unique, 0},
		{store, 1, 63, zipf, time.Minute},
		{memory, 1, 63, zipf, 0},
	} {
		j := job{peer: step.peer, instances: step.instances, connections: step.connections, keys: step.keys}
		if got := b.nextSettling(j); got != step.want {
			t.Errorf("step %d settles for %v, want %v", i, got, step.want)
		}
	}
}

func keys(t *testing.T, name string) load.Keys {
	t.Helper()
	k, err := load.ParseKeys(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestProcessesEnd(t *testing.T) {
	b := &bench{scratch: t.TempDir()}
	p, err := b.start("/bin/sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.pid(), 0); err != nil {
		t.Fatalf("the process does not run: %v", err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(p.pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process still runs: %v", err)
	}
}

// The error for a service that can't start contains its output.
func TestServiceThatEndsAtOnce(t *testing.T) {
	b := &bench{settings: &settings{}, scratch: t.TempDir()}
	s := &subject{}
	err := s.serve(b, job{instances: 1}, "/bin/sh", "-c", "echo no room; exit 3")
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("%v", err)
	}
}

// All instances are called once each knows all others, and all keys' owners know which keys are new.
func TestInstancesJoin(t *testing.T) {
	const known = "ratelimitd_members_known_share 0.3333\n"
	for metrics, fails := range map[string]bool{
		"ratelimitd_members 3\nratelimitd_members_view_installed 1\n" + known:                              false,
		"ratelimitd_members 3\nratelimitd_members_view_installed 1\nratelimitd_members_known_share 0.25\n": true,
		"ratelimitd_members 3\nratelimitd_members_view_installed 1\n":                                      true,
		"ratelimitd_members 2\nratelimitd_members_view_installed 1\n" + known:                              true,
		"ratelimitd_members 3\nratelimitd_members_view_installed 0\n" + known:                              true,
		"ratelimitd_members 30\nratelimitd_members_view_installed 1\n" + known:                             true,
		known: true,
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, metrics) }))
		err := joinedAll(slices.Repeat([]string{strings.TrimPrefix(server.URL, "http://")}, 3))
		server.Close()
		if (err != nil) != fails {
			t.Errorf("%q: %v", metrics, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	for name, test := range map[string]struct {
		smoke bool
		run   report.Run
		fails bool
	}{
		"fine":                {true, report.Run{Sent: 10}, false},
		"wrong":               {false, report.Run{Sent: 10, Wrong: "too many"}, true},
		"failed":              {false, report.Run{Sent: 10, Failed: 1}, false},
		"failed in smoke":     {true, report.Run{Sent: 10, Failed: 1}, true},
		"nothing sent, smoke": {true, report.Run{}, true},
	} {
		b := &bench{settings: &settings{smoke: test.smoke}, report: report.Report{Runs: []*report.Run{&test.run}}}
		if err := b.verdict(); (err != nil) != test.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
	for bytes, fails := range map[float64]bool{880: true, 990: false, 1120: true} {
		b := &bench{settings: &settings{}, report: report.Report{Runs: []*report.Run{
			{Peer: "bare", Keys: "unique", AnswerBytes: bytes}, {Peer: "embedded", Keys: "unique", AnswerBytes: 1000},
		}}}
		if err := b.verdict(); (err != nil) != fails {
			t.Errorf("bare's answer of %.0f bytes: %v", bytes, err)
		}
	}
	if (&bench{settings: &settings{}}).verdict() == nil {
		t.Error("there is no error although nothing was measured")
	}
}
