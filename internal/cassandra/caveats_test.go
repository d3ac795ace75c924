package cassandra

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestSingleCopy(t *testing.T) {
	for want, replication := range map[string]map[string]string{
		"":                         {"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "2"},
		"(dc2 = 1)":                {"class": "NetworkTopologyStrategy", "dc1": "3", "dc2": "1"},
		"(replication_factor = 1)": {"class": "SimpleStrategy", "replication_factor": "1"},
	} {
		if got := ofSingleCopy(replication); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("of %v it is said: %q", replication, got)
		}
	}
}

func TestNodesWhoseClocksAreApart(t *testing.T) {
	sample := func(aheadMS, doubtMS int) clockSample {
		return clockSample{ahead: time.Duration(aheadMS) * time.Millisecond, doubt: time.Duration(doubtMS) * time.Millisecond}
	}
	const tolerance = 100 * time.Millisecond
	for i, test := range []struct {
		samples map[string]clockSample
		want    string
	}{
		{nil, ""},
		{map[string]clockSample{"a": sample(9000, 1)}, ""}, // this instance's own clock is another matter
		{map[string]clockSample{"a": sample(9000, 1), "b": sample(9050, 1)}, ""},
		{map[string]clockSample{"a": sample(50, 1), "b": sample(-60, 1), "c": sample(0, 1)}, "node b is ahead of that of a by 108ms"},
		{map[string]clockSample{"a": sample(-300, 250), "b": sample(60, 10)}, ""}, // perhaps
		{map[string]clockSample{"a": sample(-500, 100), "b": sample(60, 10), "c": sample(-120, 1)}, "node a is ahead of that of b by 450ms"},
	} {
		if got := ofNodesApart(test.samples, tolerance); !strings.Contains(got, test.want) || test.want == "" && got != "" {
			t.Errorf("%d: it is said: %q, want %q", i, got, test.want)
		}
	}
	if got := ofNodesApart(map[string]clockSample{"a": sample(0, 1), "b": sample(9000, 1)}, 0); got != "" {
		t.Errorf("without a tolerance it is said: %q", got)
	}
}

func TestNodesThatAcknowledgeEarly(t *testing.T) {
	var nodes []string
	for i := range 12 {
		nodes = append(nodes, fmt.Sprintf("10.0.0.%d", 10+i))
	}
	if got := ofLateCommitlogs(nil); got != "" {
		t.Errorf("of no node it is said: %q", got)
	}
	if got := ofLateCommitlogs(nodes); !strings.HasSuffix(got, "10.0.0.18, 10.0.0.19 and 2 more") {
		t.Errorf("it is said: %q", got)
	}
}
