package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	filterpb "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// serve starts the real ratelimitd, and returns its address for Envoy, and a function
// that ends it.
func serve(t *testing.T) (address string, stop func()) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ratelimitd")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/ratelimitd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	command := exec.CommandContext(t.Context(), binary,
		"serve", "--listen=127.0.0.1:0", "--envoy-listen=127.0.0.1:0", "--policies=policies.yaml")
	var log bytes.Buffer
	command.Stderr = &log
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = command.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = command.Wait()
	}
	t.Cleanup(stop)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if address, found := strings.CutPrefix(lines.Text(), "listening for Envoy on grpc://"); found {
			return address, stop
		}
	}
	t.Fatalf("it does not listen for Envoy:\n%s", log.String())
	return "", nil
}

// asked returns the lines that the command prints.
func asked(t *testing.T, args ...string) []string {
	t.Helper()
	var out, errs bytes.Buffer
	if err := run(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// TestLoginsAreLimited asks like Envoy, while ratelimitd runs and after it ended.
func TestLoginsAreLimited(t *testing.T) {
	address, stop := serve(t)
	login := []string{"generic_key=login/remote_address=192.0.2.1", "remote_address=192.0.2.1"}
	args := func(more ...string) []string {
		return append(append([]string{"-address=" + address, "-timeout=20s"}, more...), login...)
	}
	got := asked(t, args("-times=6")...)
	for i, line := range got[:5] {
		if !strings.HasPrefix(line, "passes  RateLimit-Limit: 5  RateLimit-Remaining: "+string("43210"[i])) {
			t.Errorf("login %d: %s", i+1, line)
		}
	}
	if !strings.HasPrefix(got[5], "429  RateLimit-Limit: 5  RateLimit-Remaining: 0") || !strings.Contains(got[5], "Retry-After: ") {
		t.Errorf("login 6: %s", got[5])
	}
	if got := asked(t, "-address="+address, "-timeout=20s", "-times=30", "remote_address=127.0.0.9"); got[29] != "passes" {
		t.Errorf("health check 30: %s", got[29])
	}
	stop()
	if got := asked(t, args()...); !strings.HasPrefix(got[0], "503 (failure_mode_deny): ") {
		t.Errorf("ratelimitd is gone: %s", got[0])
	}
	if got := asked(t, args("-failure-mode-deny=false")...); !strings.HasPrefix(got[0], "passes, uncounted: ") {
		t.Errorf("ratelimitd is gone, and Envoy should let requests pass: %s", got[0])
	}
}

// TestSlowAnswersAreNotWaitedFor checks that a ratelimitd that never answers is treated as
// gone.
func TestSlowAnswersAreNotWaitedFor(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // accepts no connection
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := asked(t, "-address="+listener.Addr().String(), "-timeout=50ms", "remote_address=192.0.2.1")
	if !strings.HasPrefix(got[0], "503 (failure_mode_deny): ") {
		t.Errorf("answered %s", got[0])
	}
}

// TestEnvoyConfiguration checks that Envoy accepts its filter's configuration, and that
// it asks about the descriptors that the policies map.
func TestEnvoyConfiguration(t *testing.T) {
	data, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	manager := []any{"static_resources", "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config"}
	var filter filterpb.RateLimit
	if err := protojson.Unmarshal(asJSON(t, data, append(slices.Clip(manager), "http_filters", 0, "typed_config")...), &filter); err != nil {
		t.Fatal(err)
	}
	if err := filter.ValidateAll(); err != nil {
		t.Error(err)
	}
	if !filter.GetFailureModeDeny() || filter.GetTimeout().AsDuration().Milliseconds() <= 500 {
		t.Errorf("the filter has failure_mode_deny %v and a timeout of %v", filter.GetFailureModeDeny(), filter.GetTimeout().AsDuration())
	}
	file, err := policyfile.LoadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if mapped := file.Envoy.Domains[0].Name; filter.GetDomain() != mapped {
		t.Errorf("Envoy asks about the domain %s, but %s is mapped", filter.GetDomain(), mapped)
	}
	routes := string(asJSON(t, data, append(slices.Clip(manager), "route_config")...))
	file.Envoy.Domains[0].Each(func(_ []string, d *policyfile.EnvoyDescriptor) {
		if !strings.Contains(routes, `"`+d.Key+`"`) {
			t.Errorf("no route makes an entry of the key %s", d.Key)
		}
	})
}

// asJSON returns the part of data at path, without the type of an Any.
func asJSON(t *testing.T, data []byte, path ...any) []byte {
	t.Helper()
	var value any
	if err := yaml.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	for _, step := range path {
		switch step := step.(type) {
		case int:
			value = value.([]any)[step]
		case string:
			value = value.(map[string]any)[step]
		}
	}
	delete(value.(map[string]any), "@type")
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
