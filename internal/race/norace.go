//go:build !race

// Package race says whether the race detector is on. It makes tests ten times as slow. Under it those that try one thing
// many times try it less often, as few show it every way through the code, and long ones of a single goroutine skip
// themselves. make test runs each test that names Enabled without the detector, too.
package race

// Enabled is whether the race detector is on.
const Enabled = false
