package faultclock_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faultclock"
)

// within is much less than the offsets here and much more than this machine's pauses.
const within = 10 * time.Minute

func check(t *testing.T, c *faultclock.Clock, ahead time.Duration) {
	t.Helper()
	if off := time.Until(c.Now()) - ahead; off.Abs() > within {
		t.Errorf("the clock is ahead by %v, want %v", off+ahead, ahead)
	}
}

func TestClockIsAheadByWhatItsFileSays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	check(t, faultclock.New(""), 0)
	check(t, faultclock.New(file), 0)
	for _, ahead := range []time.Duration{3 * time.Hour, -3 * time.Hour, 0} {
		if err := faultclock.Set(file, ahead); err != nil {
			t.Fatal(err)
		}
		check(t, faultclock.New(file), ahead)
	}
}

// A clock that runs is put off, and stays so when its file makes no sense.
func TestClockIsPutOffWhileItRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	c := faultclock.New(file)
	check(t, c, 0)
	if err := faultclock.Set(file, time.Hour); err != nil {
		t.Fatal(err)
	}
	late := time.Now().Add(within)
	for time.Until(c.Now()) < within {
		if time.Now().After(late) {
			t.Fatal("the clock does not see its file change")
		}
	}
	if err := os.WriteFile(file, []byte("soon"), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, faultclock.New(file), 0)
	check(t, c, time.Hour)
}
