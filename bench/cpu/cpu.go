// Package cpu reads from Linux's /proc how much processor time processes have used, and which ones listen at an address. It
// does not know what they do.
package cpu

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of /proc's times, which Linux always shows to programs as 1/100 s.
const tick = time.Second / 100

// Used returns the processor time, user's and system's, that the processes of these ids have used so far.
func Used(pids ...int) (total time.Duration, err error) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		used, err := parse(string(stat))
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		total += used
	}
	return total, nil
}

// parse reads utime and stime, the 14th and 15th field of a stat file; the second is a name in parentheses, which may
// contain any character.
func parse(stat string) (time.Duration, error) {
	const utime, stime = 14 - 3, 15 - 3 // of the fields after the name, which begin with the third
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("no times in %q", stat)
	}
	user, err := strconv.ParseInt(fields[utime], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[stime], 10, 64)
	return time.Duration(user+system) * tick, err
}
