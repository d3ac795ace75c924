package policyfile_test

import (
	"maps"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func TestDescribe(t *testing.T) {
	policies, err := policyfile.Parse("p.yaml", []byte(`policies:
  - name: sms
    description: for people
    limits:
      - {algorithm: sliding-log, limit: 10, window: 1h}
      - {name: a-day, algorithm: fixed-window, limit: 20, window: day}
    normalize: {e164: {region: DE}}
    derive:
      - {policy: country, from: country}
  - name: country
    limits: [{algorithm: fixed-window, limit: 1000, window: 1m}]
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"limits": "{name: sliding-log-1h, algorithm: sliding-log, limit: 10, window: 1h}, " +
			"{name: a-day, algorithm: fixed-window, limit: 20, window: day, timezone: UTC}",
		"count": "admitted", "counting": "rows", "guarantee": "counted", "mode": "enforce", "on_store_error": "deny",
		"normalize": "{e164: {region: DE}}", "derive": "{policy: country, from: country}",
	}
	if got := policyfile.Describe(policies[0]); !maps.Equal(got, want) {
		t.Errorf("it is described as\n%q, want\n%q", got, want)
	}
}
