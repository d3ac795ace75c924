package policyfile_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// TestConcurrent reads a limit of requests that are under way, and writes it.
func TestConcurrent(t *testing.T) {
	const written = "algorithm: concurrent, limit: 10, hold: 30s"
	policies, err := policyfile.Parse("p.yaml", []byte(limit(written)))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Limit{Algorithm: "concurrent", Limit: 10, Window: 30 * time.Second}
	if got := policies[0].Limits[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("read as %+v", got)
	}
	text := policyfile.Format(policies)
	again, err := policyfile.Parse("formatted.yaml", text)
	named := strings.Contains(string(text), "{name: concurrent-30s, "+written+"}")
	if err != nil || !named || !reflect.DeepEqual(again[0], policies[0].WithDefaults()) {
		t.Errorf("formatted as\n%s\nand read back as %+v, %v", text, again, err)
	}
}

// TestWrongConcurrent tells each mistake once, where it is, and its cure.
func TestWrongConcurrent(t *testing.T) {
	const alone = "algorithm: concurrent, limit: 10, "
	beside := alone + "hold: 30s}\n      - {algorithm: sliding-log, limit: 10, window: 1h"
	for name, c := range map[string]struct{ limit, want string }{
		"no hold":       {"algorithm: concurrent, limit: 10", "limits[0].hold: missing: give the time that an unreleased unit counts"},
		"a window":      {alone + "window: 30s", "limits[0].window: a concurrent has none: write hold"},
		"both":          {alone + "hold: 30s, window: 30s", "limits[0].window: a concurrent has none: write hold"},
		"of another":    {"algorithm: sliding-log, limit: 10, hold: 1h", "limits[0].hold: only a concurrent has it: write window"},
		"no unit":       {alone + "hold: 30", "limits[0].hold: 30 has no unit: write it as a duration such as 30s"},
		"not a number":  {alone + "hold: .nan", "limits[0].hold: "},
		"negative":      {alone + "hold: -30s", `limits[0].hold: "-30s" is not a window: use a duration such as 30s`},
		"a calendar":    {alone + "hold: day", `limits[0].hold: "day" is not a window: use a duration such as 30s`},
		"short":         {alone + "hold: 500ms", "limits[0].hold: 500ms is out of range: use 1s to 31d, somewhat longer than the"},
		"long":          {alone + "hold: 32d", "limits[0].hold: 32d is out of range: use 1s to 31d"},
		"a fraction":    {alone + "hold: 1500.5ms", "limits[0].hold: 1.5005s is not whole milliseconds"},
		"a zone":        {alone + "hold: 30s, timezone: UTC", "limits[0].timezone: a hold begins with its units, in every time zone: remove it"},
		"until":         {alone + "hold: 30s, until: confirmed", "limits[0].until: units of a concurrent count until they are released"},
		"large":         {"algorithm: concurrent, limit: 10001, hold: 30s", "limits[0].limit: 10001 is too large for a concurrent limit"},
		"buckets":       {alone + "hold: 30s, buckets: 4", "limits[0].buckets: only a sliding-window has buckets: remove it from a concurrent"},
		"beside others": {beside, "limits[0].algorithm: a release of a concurrent would release units that limits[1] still counts: give it"},
		"no limit":      {"algorithm: concurrent, hold: 30s", "limits[0].limit: missing: give the number of units"},
		"from requests": {"algorithm: concurrent, hold: 30s, limit: {from: request, max: 10001, default: 5}",
			"limits[0].limit.max: 10001 is too large for a concurrent limit"},
	} {
		_, err := policyfile.Parse("p.yaml", []byte(limit(c.limit)))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant %q alone", name, err, c.want)
		}
	}
	all := written("limits: [{"+alone+"hold: 30s}]", "count: all")
	const want = `count: "all" has no meaning for limits[0], a concurrent: a denied request is not under way, and nobody releases`
	if _, err := policyfile.Parse("p.yaml", []byte(all)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("denied ones: %v", err)
	}
}
