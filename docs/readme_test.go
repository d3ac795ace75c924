package docs_test

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestSpeedOfReadme holds the figures of the README's row about speed, of one Cassandra node and of three, against the runs
// of performance.md.
func TestSpeedOfReadme(t *testing.T) {
	row := regexp.MustCompile(`(?m)^\| decisions a second of three instances .*$`).FindString(read(t, "../README.md"))
	page := read(t, "performance.md")
	_, run, found := strings.Cut(page, "## One run\n")
	run, _, ended := strings.Cut(run, "\nNobody was denied wrongly")
	nodes := regexp.MustCompile(`(?m)^Three nodes with three copies, .*$`).FindString(page)
	if row == "" || nodes == "" || !found || !ended {
		t.Fatal("there is no row about speed, or no run")
	}
	figures := regexp.MustCompile(`\d\.\d+`).FindAllString(row, -1)
	if len(figures) != 8 {
		t.Fatalf("it has the figures %v", figures)
	}
	for i, line := range []string{"hot", "attack", "zipf", "unique"} {
		cells := strings.Split(regexp.MustCompile(`(?m)^\|[^|]*\| `+line+` \|.*$`).FindString(run), "|") // the first is sms-send's
		checkFigure(t, line, figures[i], strings.TrimSpace(cells[5]))                                    // cassandra, three, × redis_rate
		checkFigure(t, line+" on three nodes", figures[4+i], regexp.MustCompile(line + ` (\d\.\d+)`).FindStringSubmatch(nodes)[1])
	}
}

// checkFigure checks that got is want with as many decimals as got has.
func checkFigure(t *testing.T, name, got, want string) {
	t.Helper()
	_, decimals, _ := strings.Cut(got, ".")
	shown, _ := strconv.ParseFloat(got, 64)
	measured, err := strconv.ParseFloat(want, 64)
	if off := math.Abs(shown - measured); err != nil || off > 0.5001*math.Pow10(-len(decimals)) {
		t.Errorf("%s of %s, want %s: %v", got, name, want, err)
	}
}
