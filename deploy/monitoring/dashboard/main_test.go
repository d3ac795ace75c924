package main

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "update the dashboard")

// TestDashboardIsCurrent compares the file that people import with panels.go.
func TestDashboardIsCurrent(t *testing.T) {
	const file = "../dashboard.json"
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is out of date: run go test . -update", file)
	}
}

// TestEmptyIsOfPanels looks for the panel of each text in empty.
func TestEmptyIsOfPanels(t *testing.T) {
	titles := map[string]bool{}
	for _, r := range rows {
		for _, p := range r.panels {
			titles[p.title] = true
		}
	}
	for title := range empty {
		if !titles[title] {
			t.Errorf("empty has a text for %q, which is not a panel", title)
		}
	}
}
