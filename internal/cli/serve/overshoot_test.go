package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
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
	text := s.Body(t, path)
	if strings.Contains(text, "4915112345678") {
		t.Errorf("an identifier is in the answer: %s", text)
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

// TestOvershoot denies some callers, asks how far they went, and finds out which is the worst.
func TestOvershoot(t *testing.T) {
	key := clitest.Write(t, "key", "k:00112233445566778899aabbccddeeff\n")
	policies := clitest.Write(t, "p.yaml", "policies: [{name: p, limits: [{algorithm: sliding-log, limit: 2, window: 1h}]}]\n")
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
	code, stdout, stderr := clitest.Execute(t, nil, append([]string{"key", "p", "+4915112345678"}, flags...)...)
	if code != command.ExitOK || strings.TrimSpace(stdout) != o.Worst[0].Key || stderr != "" {
		t.Errorf("exit code %d, key %q, errors %q; the worst is %+v", code, stdout, stderr, o.Worst)
	}
	for _, want := range []string{
		`ratelimitd_overshoot_units_total{policy="p"} 7`, `ratelimitd_overshoot_policy_keys{policy="p"} 2`,
	} {
		if text := s.Body(t, "/metrics"); !strings.Contains(text, want) || strings.Contains(text, o.Worst[0].Key) {
			t.Errorf("no %s in the metrics, or a key:\n%s", want, text)
		}
	}
	if strings.Contains(s.Log.String(), "4915112345678") {
		t.Errorf("an identifier is in the log:\n%s", s.Log)
	}
}

// takeAs takes one unit for somebody.
func (s *server) takeAs(t *testing.T, policy, identifier string) {
	t.Helper()
	body := fmt.Sprintf(`{"policy": %q, "identifier": %q}`, policy, identifier)
	resp, err := http.Post(s.URL+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// TestOvershootOverReloads knows the policies that are in force, and no others.
func TestOvershootOverReloads(t *testing.T) {
	file := clitest.Write(t, "p.yaml", policiesNamed("first"))
	s := start(t, nil, "--policies", file)
	for range 12 {
		s.Take(t, "first")
	}
	if o := s.overshoot(t, "/v1/policies/first/overshoot"); o.Attempts != 2 {
		t.Errorf("%+v", o)
	}
	replace := func(policies string, times int) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file+".new", []byte(policies), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatal(err)
		}
		s.Log.WaitFor(t, "policies in force", times)
	}
	replace(policiesNamed("second"), 2)
	first, second := s.Get(t, "/v1/policies/first/overshoot"), s.Get(t, "/v1/policies/second/overshoot")
	if first != http.StatusNotFound || second != http.StatusOK {
		t.Errorf("the policy that is gone: %d, the new one: %d", first, second)
	}
	replace(policiesNamed("first"), 3)
	if o := s.overshoot(t, "/v1/policies/first/overshoot"); o.Attempts != 0 || len(o.Worst) != 0 {
		t.Errorf("a policy that came back: %+v", o)
	}
}
