package audit_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/audit"
)

// TestRefusalsAreBounded has many refused at once: one line a second says how many.
func TestRefusalsAreBounded(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	l := audit.New(slog.New(slog.NewJSONHandler(&out, nil)), func() time.Time { return now })
	refuse := func(n int) {
		var all sync.WaitGroup
		for range n {
			all.Go(func() { l.Refused(t.Context(), &audit.Refusal{Where: "/v1/take", Reason: "no"}) })
		}
		all.Wait()
	}
	refuse(100)
	now = now.Add(time.Second - 1)
	refuse(10)
	now = now.Add(1)
	refuse(1)
	var before []int
	for line := range strings.Lines(out.String()) {
		var read struct {
			Who, Outcome string
			Before       int `json:"refused_before"`
		}
		if err := json.Unmarshal([]byte(line), &read); err != nil || read.Who != audit.Anonymous || read.Outcome != "refused" {
			t.Errorf("%s: %v", line, err)
		}
		before = append(before, read.Before)
	}
	if len(before) != 2 || before[0]+before[1] != 109 {
		t.Errorf("%v: two lines, and 109 refusals without one", before)
	}
}

// TestRefusalsHideNoOthers has one refused while another one tries tokens: both have a line, and
// so has what the one is refused elsewhere or for another reason.
func TestRefusalsHideNoOthers(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	l := audit.New(slog.New(slog.NewJSONHandler(&out, nil)), func() time.Time { return now })
	for range 3 {
		for range 500 {
			l.Refused(t.Context(), &audit.Refusal{Where: "/v1/reset", Reason: "unknown"})
		}
		for _, r := range []audit.Refusal{
			{Who: "shop", Where: "/v1/reset", Reason: "scope"}, {Who: "bank", Where: "/v1/reset", Reason: "scope"},
			{Who: "shop", Where: "/v1/overrides", Reason: "scope"}, {Who: "shop", Where: "/v1/reset", Reason: "policy"},
		} {
			l.Refused(t.Context(), &r)
		}
	}
	if lines := strings.Count(out.String(), "\n"); lines != 5 {
		t.Errorf("%d lines, want one for each of five:\n%s", lines, &out)
	}
	for _, want := range []string{
		`"who":"shop","outcome":"refused","route":"/v1/reset","reason":"scope","refused_before":499`, `"who":"bank"`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}

// TestRefusalsOfManyAreBounded has more callers refused than have a line each.
func TestRefusalsOfManyAreBounded(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	l := audit.New(slog.New(slog.NewJSONHandler(&out, nil)), func() time.Time { return now })
	for i := range 5000 {
		l.Refused(t.Context(), &audit.Refusal{Who: strings.Repeat("a", i), Where: "/v1/take"})
	}
	if lines := strings.Count(out.String(), "\n"); lines != 1000 {
		t.Errorf("%d lines", lines)
	}
	now = now.Add(-time.Hour) // a clock that is set back stops nothing
	l.Refused(t.Context(), &audit.Refusal{Where: "/v1/take"})
	if !strings.Contains(out.String(), `"refused_before":4000`) {
		t.Error("it is not said how many have no line")
	}
}
