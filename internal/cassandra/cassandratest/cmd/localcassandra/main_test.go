package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest/localcassandra"
)

// A command runs on the nodes that the environment names, and its exit code is passed on.
func TestRunCommandOnGivenHosts(t *testing.T) {
	t.Setenv(localcassandra.EnvHosts, "192.0.2.1:9042")
	var stdout, stderr bytes.Buffer
	command := []string{"--", "sh", "-c", `echo "$` + localcassandra.EnvHosts + `"; exit 3`}
	code, err := run(t.Context(), command, &stdout, &stderr)
	if code != 3 || err != nil {
		t.Errorf("run = %d, %v; want the command's 3", code, err)
	}
	if got := stdout.String(); got != "192.0.2.1:9042\n" {
		t.Errorf("the command saw the hosts %q", got)
	}
}

func TestRunRefusesWrongUsage(t *testing.T) {
	for _, args := range []string{"-nodes 0", "-nodes 4", "-nodes x", "-unknown"} {
		var stdout, stderr bytes.Buffer
		if code, _ := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != 2 {
			t.Errorf("run(%s) = %d, want 2", args, code)
		}
	}
	t.Setenv(localcassandra.EnvHosts, "")
	t.Setenv(localcassandra.EnvMode, "podman")
	if code, err := run(t.Context(), nil, &bytes.Buffer{}, &bytes.Buffer{}); code != 1 || err == nil {
		t.Errorf("run with mode podman = %d, %v; want 1 and an error", code, err)
	}
}
