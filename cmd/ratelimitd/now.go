//go:build !faults

package main

import "time"

// now is the clock by which this process counts, measures and answers.
func now() time.Time { return time.Now() }
