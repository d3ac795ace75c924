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
