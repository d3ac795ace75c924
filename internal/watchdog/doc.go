// Package watchdog has something done should this process end, in whatever way: children are not to outlive those that
// started them for tests and benchmarks.
package watchdog
