package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
)

// overshootBody is an answer of GET /v1/policies/{name}/overshoot, as far as it is
// looked at here.
type overshootBody struct {
	Policy, Scope             string
	Attempts, Units, Episodes int64
	KeysOver                  int64 `json:"keys_over"`
	Distribution              struct {
		Attempts struct{ Count, P50, Max float64 }
	}
	Worst []struct {
		Key             string
		Attempts, Error int64
	}
}

func (s *server) overshoot(t *testing.T, path string) (o overshootBody) {
	t.Helper()
	text := s.body(t, path)
	if strings.Contains(text, "4915112345678") {
		t.Errorf("an identifier is in the answer: %s", text)
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

// TestOvershoot denies some callers, asks how far they went, and finds out who the
// worst is.
func TestOvershoot(t *testing.T) {
	key := writeFile(t, "key", "k:00112233445566778899aabbccddeeff\n")
	policies := writeFile(t, "p.yaml", "policies: [{name: p, limits: [{algorithm: sliding-log, limit: 2, window: 1h}]}]\n")
	flags := []string{"--policies", policies, "--hash-key-file", key, "--namespace", "mine"}
	s := start(t, nil, flags...)
	for i, takes := range []int{8, 3, 1} {
		for range takes {
			s.takeAs(t, "p", fmt.Sprintf("+491511234567%d", 8-i))
		}
	}
	o := s.overshoot(t, "/v1/policies/p/overshoot?top=1")
	if o.Policy != "p" || o.Scope != "instance" || o.Attempts != 7 || o.Units != 7 || o.Episodes != 2 || o.KeysOver != 2 {
		t.Errorf("%+v", o)
	}
	if a := o.Distribution.Attempts; a.Count != 2 || a.P50 != 1 || a.Max != 6 {
		t.Errorf("%+v", a)
	}
	if len(o.Worst) != 1 || o.Worst[0].Attempts != 6 || o.Worst[0].Error != 0 {
		t.Fatalf("%+v", o.Worst)
	}
	code, stdout, stderr := execute(t, nil, append([]string{"key", "p", "+4915112345678"}, flags...)...)
	if code != exitOK || strings.TrimSpace(stdout) != o.Worst[0].Key || stderr != "" {
		t.Errorf("exit code %d, key %q, errors %q; the worst is %+v", code, stdout, stderr, o.Worst)
	}
	for _, want := range []string{
		`ratelimitd_overshoot_units_total{policy="p"} 7`, `ratelimitd_overshoot_policy_keys{policy="p"} 2`,
	} {
		if text := s.body(t, "/metrics"); !strings.Contains(text, want) || strings.Contains(text, o.Worst[0].Key) {
			t.Errorf("no %s in the metrics, or a key:\n%s", want, text)
		}
	}
	if strings.Contains(s.log.String(), "4915112345678") {
		t.Errorf("an identifier is in the log:\n%s", s.log)
	}
}

// takeAs takes one unit for somebody.
func (s *server) takeAs(t *testing.T, policy, identifier string) {
	t.Helper()
	body := fmt.Sprintf(`{"policy": %q, "identifier": %q}`, policy, identifier)
	resp, err := http.Post(s.url+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// TestOvershootOverReloads knows the policies that are in force, and no others.
func TestOvershootOverReloads(t *testing.T) {
	file := writeFile(t, "p.yaml", policiesNamed("first"))
	s := start(t, nil, "--policies", file)
	for range 12 {
		s.take(t, "first")
	}
	if o := s.overshoot(t, "/v1/policies/first/overshoot"); o.Attempts != 2 {
		t.Errorf("%+v", o)
	}
	replace := func(policies string, times int) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", []byte(policies), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
		s.log.waitFor(t, "policies in force", times)
	}
	replace(policiesNamed("second"), 2)
	first, second := s.get(t, "/v1/policies/first/overshoot"), s.get(t, "/v1/policies/second/overshoot")
	if first != http.StatusNotFound || second != http.StatusOK {
		t.Errorf("the policy that is gone: %d, the new one: %d", first, second)
	}
	replace(policiesNamed("first"), 3)
	if o := s.overshoot(t, "/v1/policies/first/overshoot"); o.Attempts != 0 || len(o.Worst) != 0 {
		t.Errorf("a policy that came back: %+v", o)
	}
}

// TestKey tells keys apart by all that makes them, and says what is missing.
func TestKey(t *testing.T) {
	hashKey := writeFile(t, "key", "k:00112233445566778899aabbccddeeff\n")
	seen := make(map[string][]string)
	for _, flags := range [][]string{
		{}, {"--namespace", "mine"}, {"--hash-key-file", hashKey},
		{"--store", "cassandra", "--cassandra-datacenter", "a"}, {"--store", "cassandra", "--cassandra-datacenter", "b"},
		{"--store", "cassandra", "--consistency", "QUORUM"},
	} {
		code, stdout, stderr := execute(t, nil, append([]string{"key", "login", "alice"}, flags...)...)
		if code != exitOK || len(stdout) != 65 {
			t.Errorf("%v: exit code %d, output %q, errors %q", flags, code, stdout, stderr)
		}
		seen[stdout] = append(seen[stdout], strings.Join(flags, " "))
	}
	if len(seen) != 5 { // a promise over the cluster has the key that one copy has
		t.Errorf("%q", seen)
	}
	local := writeFile(t, "policies.yaml",
		"policies: [{name: otp, guarantee: local, limits: [{algorithm: sliding-log, limit: 5, window: 1h}]}]\n")
	for _, datacenter := range []string{"a", "b"} {
		code, stdout, stderr := execute(t, nil,
			"key", "otp", "alice", "--policies", local, "--store", "cassandra", "--cassandra-datacenter", datacenter)
		if code != exitOK || len(stdout) != 65 || seen[stdout] != nil {
			t.Errorf("under guarantee local: exit code %d, output %q, errors %q", code, stdout, stderr)
		}
		seen[stdout] = []string{datacenter}
	}
	for want, args := range map[string][]string{
		"give --cassandra-datacenter":  {"login", "4915112345678", "--store", "cassandra"},
		"policy otp: give --cassandra": {"otp", "4915112345678", "--store", "cassandra", "--policies", local},
		"unknown policy":               {"logon", "4915112345678"},
		"give POLICY and IDENTIFIER":   {"login"},
		"1 to 1024":                    {"login", ""},
		"there is no identifier on st": {"login", "-"},
	} {
		code, stdout, stderr := execute(t, nil, append([]string{"key"}, args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) || strings.Contains(stderr, "4915112345678") {
			t.Errorf("%v: exit code %d, output %q, errors %q", args, code, stdout, stderr)
		}
	}
}
