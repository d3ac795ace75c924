package docs_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSpeedOfReadme holds the figures of the README's row about speed against the run that performance.md has.
func TestSpeedOfReadme(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| decisions a second of three instances, .*$`).FindString(read(t, "../README.md"))
	_, run, found := strings.Cut(read(t, "performance.md"), "## One run\n")
	run, _, ended := strings.Cut(run, "\nNobody was denied wrongly")
	if row == "" || !found || !ended {
		t.Fatal("there is no row about speed, or no run")
	}
	figures := regexp.MustCompile(`\d\.\d`).FindAllString(row, -1)
	if len(figures) != 4 {
		t.Fatalf("it has the figures %v", figures)
	}
	for i, line := range []string{"hot", "attack", "zipf", "unique"} {
		cells := strings.Split(regexp.MustCompile(`(?m)^\|[^|]*\| `+line+` \|.*$`).FindString(run), "|") // the first is sms-send's
		want, err := strconv.ParseFloat(strings.TrimSpace(cells[5]), 64)                                 // cassandra, three, × redis_rate
		got, _ := strconv.ParseFloat(figures[i], 64)
		if err != nil || math.Abs(got-want) > 0.05 {
			t.Errorf("%s of %s, want %v: %v", figures[i], line, want, err)
		}
	}
}
