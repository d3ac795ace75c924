//go:build faults

package main

import (
	"os"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faultclock"
)

var faulty = faultclock.New(os.Getenv(faultclock.Variable))

// now is a clock that can be put off while the process runs. It is in no build but that
// of the tests that need it.
func now() time.Time { return faulty.Now() }
