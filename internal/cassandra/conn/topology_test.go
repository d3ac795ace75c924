package conn

import (
	"strings"
	"testing"
)

func TestLocalDatacenter(t *testing.T) {
	one, two := Topology{nodes: map[string]int{"dc1": 1}}, Topology{nodes: map[string]int{"dc1": 2, "dc2": 5}}
	for _, c := range []struct {
		name   string
		of     Topology
		asked  string
		needed bool
		want   string
		err    string
	}{
		{"the only one", one, "", true, "dc1", ""},
		{"the one asked for", two, "dc2", true, "dc2", ""},
		{"several, and none is needed", two, "", false, "", ""},
		{"several, and one is needed", two, "", true, "", "name the local one"},
		{"none of them", two, "dc3", false, "", `no "dc3", it has dc1, dc2`},
	} {
		got, err := c.of.Local(c.asked, c.needed)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v, want %q, %q", c.name, got, err, c.want, c.err)
		}
	}
}

func TestReplicationOfANewKeyspace(t *testing.T) {
	got := Topology{nodes: map[string]int{"dc1": 2, "d'c2": 5}}.Replication()
	if want := "{'class': 'NetworkTopologyStrategy', 'd''c2': 3, 'dc1': 2}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
