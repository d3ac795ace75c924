package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// TestGoals plays the week, and holds the README's figures and picture to what comes of it.
func TestGoals(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("one goroutine decides 340,000 times")
	}
	all, err := compare("../sms-pumping.yaml", "prices.csv", 1)
	if err != nil {
		t.Fatal(err)
	}
	if saved := all.saved(all.whole); saved < .95 {
		t.Errorf("%.1f %% of the cost is saved, want 95 %%", 100*saved)
	}
	if hurt, of := len(all.whole.hurt), all.signups(); 1000*hurt >= of {
		t.Errorf("%d of %d honest sign-ups were denied, want fewer than 1 in 1,000", hurt, of)
	}
	var printed strings.Builder
	if err := all.write(&printed); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), printed.String()) {
		t.Errorf("the README does not have\n%s", printed.String())
	}
	var drawn strings.Builder
	if err := all.draw(&drawn); err != nil {
		t.Fatal(err)
	}
	if committed, err := os.ReadFile("../week.svg"); err != nil || string(committed) != drawn.String() {
		t.Errorf("../week.svg is not what is drawn (%v): go run . -plot ../week.svg", err)
	}
}

// TestWithoutPrices names the file.
func TestWithoutPrices(t *testing.T) {
	if err := run(new(strings.Builder), "../sms-pumping.yaml", "none.csv", "", 1); err == nil || !strings.Contains(err.Error(), "none.csv") {
		t.Error(err)
	}
}
