package load

import (
	"syscall"
	"time"
)

// sleepExactly sleeps as the system does, or less: Go's own timers may be a millisecond late when nothing else wakes the
// process.
func sleepExactly(d time.Duration) {
	spec := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&spec, nil) // a signal ends it early
}
