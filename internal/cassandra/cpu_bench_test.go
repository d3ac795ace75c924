package cassandra_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// measureCPU has b report, once done is called, how many microseconds of processor time an
// operation took of this process and of all nodes on this machine. Their other work, flushes
// and compactions, is included. Elsewhere than on Linux nothing is reported.
func measureCPU(b *testing.B) (done func()) {
	nodes := nodesHere()
	service, store := usedCPU("self"), usedCPU(nodes...)
	return func() {
		if len(nodes) == 0 {
			return
		}
		b.ReportMetric((usedCPU("self")-service)/float64(b.N), "service-µs/op")
		b.ReportMetric((usedCPU(nodes...)-store)/float64(b.N), "nodes-µs/op")
	}
}

// nodesHere returns the ids of the processes that are nodes of Cassandra.
func nodesHere() (pids []string) {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range commands {
		command, err := os.ReadFile(path)
		if err == nil && bytes.Contains(command, []byte("\x00org.apache.cassandra.service.CassandraDaemon\x00")) {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

// usedCPU returns the processor time of processes so far, user's and system's, in
// microseconds, of which /proc tells hundredths of a second; 0 of those that are gone.
func usedCPU(pids ...string) (total float64) {
	const utime, stime, tick = 11, 12, 10_000 // of the fields after the name, which may hold anything
	for _, pid := range pids {
		stat, _ := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) <= stime {
			continue
		}
		for _, field := range fields[utime : stime+1] {
			ticks, _ := strconv.ParseFloat(field, 64)
			total += tick * ticks
		}
	}
	return total
}
