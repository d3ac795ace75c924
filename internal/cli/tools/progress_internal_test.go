package tools

import (
	"bytes"
	"testing"
	"time"
)

// TestProgress is told as far as it is known, and on a terminal only.
func TestProgress(t *testing.T) {
	for want, got := range map[string]string{
		"0 lines":              progressText(0, 0, 0, 0),
		"10 lines, 5 a second": progressText(7, 0, 10, 2*time.Second),
		"[###############...............] 50 %, 10 lines, 5 a second":  progressText(50, 100, 10, 2*time.Second),
		"[##############################] 100 %, 10 lines, 5 a second": progressText(100, 100, 10, 2*time.Second),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var out bytes.Buffer
	bar := newProgressBar(&out)
	bar.show(1, 2, 3)
	if bar.remove(); out.Len() > 0 {
		t.Errorf("without a terminal: %q", out.String())
	}
}
