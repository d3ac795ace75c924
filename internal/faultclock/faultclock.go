// Package faultclock is a clock whose error is read from a file, and can be changed while a process runs. Tests with
// clocks that differ give it to a real process.
//
// It knows neither the process nor the clocks of others.
package faultclock

import (
	"os"
	"strings"
	"sync"
	"time"
)

// Variable is the environment variable that names the file of a process's clock.
const Variable = "FAULTS_CLOCK_FILE"

// readEvery bounds how often the file is read: a process asks for the time a thousand times a
// second, and the test that writes the file can wait this long.
const readEvery = 20 * time.Millisecond

// A Clock is ahead of the true one by the duration that its file holds, behind where
// that is below 0, and right where there is no file. It is safe for concurrent use.
type Clock struct {
	file string

	mu    sync.Mutex
	read  time.Time // when the file was
	ahead time.Duration
}

// New returns the clock of file. An empty name is a clock that is right.
func New(file string) *Clock { return &Clock{file: file} }

// Now returns the time by c. A file that holds no duration leaves c as it was.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.file != "" && (c.read.IsZero() || now.Sub(c.read) >= readEvery) {
		c.read = now
		if ahead, err := readFile(c.file); err == nil {
			c.ahead = ahead
		}
	}
	return now.Add(c.ahead)
}

func readFile(name string) (time.Duration, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return time.ParseDuration(strings.TrimSpace(string(text)))
}

// Set writes how far the clock of file is ahead. A reader finds the old duration or the new one, and nothing between.
func Set(file string, ahead time.Duration) error {
	if err := os.WriteFile(file+".new", []byte(ahead.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
