package cpu

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	const tail = " S 1 2 3 0 -1 4194560 5 6 7 8 150 25 9 10 20 0 4 0 777 888 99"
	for _, name := range []string{"(redis-server)", "(a) b 1 (2) )"} {
		if got, err := parse("4711 " + name + tail); got != 1750*time.Millisecond || err != nil {
			t.Errorf("%s: %v, %v; want 1.75s", name, got, err)
		}
	}
	for _, stat := range []string{"", "1 (x) S 1", "1 (x) S 1 2 3 4 5 6 7 8 9 10 eleven 12 13"} {
		if got, err := parse(stat); err == nil {
			t.Errorf("%q: %v", stat, got)
		}
	}
}

// The processor time of this process is between two measurements by the system.
func TestUsedIsWhatRusageSays(t *testing.T) {
	linux(t)
	for end := rusage(t) + 200*time.Millisecond; rusage(t) < end; {
		continue // something to count
	}
	before := rusage(t)
	used, err := Used(os.Getpid())
	after := rusage(t)
	const rounding = 2 * tick // user's and system's time are rounded separately
	if err != nil || used < before-rounding || used > after+rounding {
		t.Errorf("used %v, %v; want %v to %v", used, err, before, after)
	}
	if twice, err := Used(os.Getpid(), os.Getpid()); err != nil || twice < 2*used {
		t.Errorf("two processes used %v, %v; want twice %v", twice, err, used)
	}
	if _, err := Used(1 << 30); err == nil {
		t.Error("a missing process has used processor time")
	}
}

func rusage(t *testing.T) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func linux(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("this needs Linux's /proc")
	}
}

func TestListens(t *testing.T) {
	linux(t)
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		listener, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("%s: %v", at, err) // not every machine has IPv6
			continue
		}
		defer listener.Close()
		port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
		if found, err := Listens(os.Getpid(), address("127.0.0.1", port)); !found || err != nil {
			t.Errorf("%s, open: %v, %v", listener.Addr(), found, err)
		}
		listener.Close()
		if found, err := Listens(os.Getpid(), address("127.0.0.1", port)); found || err != nil {
			t.Errorf("%s, closed: %v, %v", listener.Addr(), found, err)
		}
	}
}

func address(host string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(host), port)
}

func TestListening(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2352 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0200057F:2352 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 0100007F:2352 0100007F:8888 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0
   3: 0000000000000000FFFF00000200057F:2352 00000000000000000000000000000000:0000 0A 00000000:00000000 00:0 0 0 0 14 1
   4: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:0 0 0 0 15 1
`
	for at, want := range map[string][]string{
		"127.0.0.1:9042": {"11"},
		"127.5.0.2:9042": {"12", "14"},
		"127.9.9.9:8080": {"15"},
		"127.0.0.1:8081": nil,
	} {
		if got := listening(table, netip.MustParseAddrPort(at)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", at, got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	linux(t)
	if pids := Named(os.Args[0]); !slices.Contains(pids, os.Getpid()) {
		t.Errorf("%v lack this process, %d", pids, os.Getpid())
	}
	if pids := Named(os.Args[0], "no process has this"+" in its command line"); len(pids) > 0 {
		t.Errorf("found %v", pids)
	}
}
