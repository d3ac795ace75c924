//go:build !race

// Package race reports whether the race detector is on. It makes tests ten times slower, so tests that try one thing many
// times try it less often under it, and long ones of a single goroutine skip themselves. make test runs each test that
// names Enabled without the detector, too.
package race

// Enabled is whether the race detector is on.
const Enabled = false
