package load

import (
	"syscall"
	"time"
)

// sleepExactly sleeps with a system call, perhaps less than d: Go's timers may be a millisecond late if nothing else wakes the
// process.
func sleepExactly(d time.Duration) {
	spec := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&spec, nil) // a signal ends it early
}
