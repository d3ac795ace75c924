package serve_test

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/inprocess"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// agreeing returns the flags of instances that are of one namespace, where hosts are reached.
func agreeing(t *testing.T, hosts, namespace string, limit int, more ...string) []string {
	t.Helper()
	policies := fmt.Sprintf("policies: [{name: sms, limits: [{algorithm: sliding-log, limit: %d, window: 1h}]}]\n"+
		"envoy: {domains: [{domain: edge, descriptors: [{key: of%[1]d, policy: sms}]}]}\n", limit)
	return append([]string{
		"--store=cassandra", "--migrate", "--cassandra-hosts=" + hosts, "--cassandra-keyspace=" + cassandratest.CommonKeyspace(t),
		"--namespace=" + namespace, "--store-timeout=5s", "--policies=" + clitest.Write(t, "p.yaml", policies),
	}, more...)
}

// hashKeyFile writes a file of hash keys, each by its name.
func hashKeyFile(t *testing.T, names ...string) string {
	t.Helper()
	text := ""
	for _, name := range names {
		text += fmt.Sprintf("%s:%x\n", name, "the secret that is called "+name)
	}
	return "--hash-key-file=" + clitest.Write(t, "hash.key", text)
}

// TestAnotherHashKeyIsRefused starts processes on one Cassandra that would count apart.
func TestAnotherHashKeyIsRefused(t *testing.T) {
	hosts, namespace := strings.Join(cassandratest.Hosts(t), ","), rand.Text()
	first := startProcess(t, agreeing(t, hosts, namespace, 10, hashKeyFile(t, "one"), "--peer-listen=127.0.0.1:0")...)
	refused := agreeing(t, hosts, namespace, 10, hashKeyFile(t, "two"))
	want := []string{
		"--hash-key-file: ", "key two (check value ", "key one (check value ",
		fmt.Sprintf("process %d, peer address 127.0.0.1:", first.cmd.Process.Pid),
	}
	holds := func(log string) {
		t.Helper()
		for _, text := range want {
			if !strings.Contains(log, text) {
				t.Errorf("no %q in\n%s", text, log)
			}
		}
	}
	code, stdout, stderr := clitest.Execute(t, nil, append([]string{"serve", "--listen=127.0.0.1:0"}, refused...)...)
	if code != command.ExitFailure || stdout != "" {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
	holds(stderr)

	// One that finds its Cassandra later.
	door := cassandratest.NewDoor(t)
	late := start(t, nil, agreeing(t, door.Addr(), namespace, 10, hashKeyFile(t, "two"))...)
	door.Open()
	if code := late.Wait(t); code != command.ExitFailure {
		t.Errorf("late: exit code %d", code)
	}
	holds(late.Log.String())

	// Steps of a change.
	second := startProcess(t, agreeing(t, hosts, namespace, 10, hashKeyFile(t, "one", "two"))...)
	first.end(t, syscall.SIGTERM)
	third := startProcess(t, agreeing(t, hosts, namespace, 10, hashKeyFile(t, "two", "one"))...)
	second.end(t, syscall.SIGTERM)
	startProcess(t, refused...).end(t, syscall.SIGTERM)
	third.end(t, syscall.SIGTERM)
}

// TestSettingsThatDisagreeAreTold has two instances of which one lets twice as many pass.
func TestSettingsThatDisagreeAreTold(t *testing.T) {
	hosts, namespace := strings.Join(cassandratest.Hosts(t), ","), rand.Text()
	first := start(t, nil, agreeing(t, hosts, namespace, 10, "--envoy-listen=127.0.0.1:0")...)
	if got := first.Body(t, "/readyz"); strings.Contains(got, "settings") {
		t.Errorf("alone it says %s", got)
	}
	first.WaitForMetric(t, `ratelimitd_settings_disagree{setting="clock-tolerance"} 0`)
	second := start(t, nil, agreeing(t, hosts, namespace, 20, "--envoy-listen=127.0.0.1:0", "--clock-tolerance=250ms")...)
	for _, text := range []string{
		"setting=clock-tolerance here=250ms there=100ms", "setting=policies.sms.limits", `setting=envoy.edge here="descriptors: 1, check value `,
		`there="{name: sliding-log-1h, algorithm: sliding-log, limit: 10, window: 1h}"`, fmt.Sprintf("process %d", os.Getpid()),
	} {
		if !strings.Contains(second.Log.String(), text) {
			t.Errorf("no %s in the log:\n%s", text, second.Log)
		}
	}
	second.waitReady(t)
	second.WaitForBody(t, "/readyz", "clock-tolerance, envoy, policies, and must have the same")
	if got := second.Body(t, "/readyz"); strings.Contains(got, "process") || strings.Contains(got, "sms") {
		t.Errorf("readyz says %s", got)
	}
	for _, setting := range []string{"clock-tolerance", "policies.sms.limits", "envoy.edge"} {
		second.WaitForMetric(t, fmt.Sprintf(`ratelimitd_settings_disagree{setting=%q} 1`, setting))
	}
	second.WaitForMetric(t, `ratelimitd_settings_disagree{setting="store-timeout"} 0`)
}

// TestPoliciesOfItsOwnAreTold has a server whose policies are in the store, beside a process that decides by its own.
func TestPoliciesOfItsOwnAreTold(t *testing.T) {
	hosts, keyspace, namespace := cassandratest.Hosts(t), cassandratest.CommonKeyspace(t), rand.Text()
	start(t, nil, "--store=cassandra", "--migrate", "--cassandra-hosts="+strings.Join(hosts, ","), "--cassandra-keyspace="+keyspace,
		"--namespace="+namespace)
	log := clitest.NewLog()
	limits, err := inprocess.Open(t.Context(), "policies: [{name: sms, limits: [{algorithm: sliding-log, limit: 10, window: 1h}]}]",
		&inprocess.Options{
			Cassandra: &inprocess.Cassandra{Hosts: hosts, Keyspace: keyspace},
			Namespace: namespace,
			Logger:    slog.New(slog.NewTextHandler(log, nil)),
		})
	if err != nil {
		t.Fatal(err)
	}
	log.WaitFor(t, `setting=policies here="its own" there="those in the store"`, 1) // once Cassandra is reached
	if err := limits.Close(); err != nil {
		t.Error(err)
	}
}
