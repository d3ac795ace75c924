//go:build !linux

package load

import "time"

func sleepExactly(d time.Duration) { time.Sleep(d) }
