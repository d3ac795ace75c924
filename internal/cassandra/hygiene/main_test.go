package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func TestFlags(t *testing.T) {
	s, err := parse([]string{"-for", "90s", "-rate", "7", "-out", "x"}, io.Discard)
	if want := (settings{lasts: 90 * time.Second, rate: 7, out: "x"}); err != nil || s != want {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := parse([]string{"-days", "3"}, io.Discard); err == nil {
		t.Error("a flag that is not there was taken")
	}
}

// TestDrawingAgain writes a folder of results twice, the second time from the first.
func TestDrawingAgain(t *testing.T) {
	folder := t.TempDir()
	s := newSeries(time.Now())
	s.points["rows counters"] = []point{{10, 5}, {700, 7}}
	if err := write(folder, s); err != nil {
		t.Fatal(err)
	}
	chart := filepath.Join(folder, "rows.svg")
	first, err := os.ReadFile(chart)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(chart), run(t.Context(), settings{draw: true, out: folder}, io.Discard)); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(chart); err != nil || !bytes.Equal(first, again) {
		t.Errorf("drawn again, %v:\n%s\nat first:\n%s", err, again, first)
	}
}

// TestLoadIsOfEveryAlgorithm makes sure that nothing new is left out, and that policies
// are such as can be served.
func TestLoadIsOfEveryAlgorithm(t *testing.T) {
	used := map[string]bool{}
	for _, p := range policies {
		if found := p.Problems(); len(found) > 0 {
			t.Errorf("%s: %v", p.Name, found)
		}
		for _, l := range p.Limits {
			used[l.Algorithm] = true
		}
	}
	for _, algorithm := range policy.Algorithms() {
		if !used[algorithm] {
			t.Errorf("no policy uses %s", algorithm)
		}
	}
	often := 0
	for _, kind := range kinds {
		often += kind.often
	}
	if often != 100 {
		t.Errorf("kinds of calls come %d times of a hundred", often)
	}
}
