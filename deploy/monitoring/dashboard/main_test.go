package main

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the dashboard anew")

// TestDashboardIsCurrent compares the file that people import with what panels.go says.
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
