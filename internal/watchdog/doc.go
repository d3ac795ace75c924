// Package watchdog runs a command when this process ends, in whatever way, so that children of tests and benchmarks
// don't outlive them.
package watchdog
