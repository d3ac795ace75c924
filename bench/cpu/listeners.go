package cpu

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Named returns the ids of the processes whose command lines have all of these parts.
func Named(parts ...string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !containsAll(string(line), parts) {
			continue // it may have ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// Listens reports whether a process has a socket that listens at the address, or at all addresses with its port. It needs
// root, or a process of the same user.
func Listens(pid int, at netip.AddrPort) (bool, error) {
	var inodes []string
	for _, table := range []string{"tcp", "tcp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			return false, err
		}
		inodes = append(inodes, listening(string(data), at)...)
	}
	return owns(pid, inodes)
}

// listening returns the inodes of the sockets of a table that listen at the address.
func listening(table string, at netip.AddrPort) (inodes []string) {
	const local, state, inode, listen = 1, 3, 9, "0A"
	address := at.Addr().As4()
	port := fmt.Sprintf(":%04X", at.Port())
	four := fmt.Sprintf("%02X%02X%02X%02X", address[3], address[2], address[1], address[0]) // in the machine's byte order
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) <= inode || fields[state] != listen {
			continue
		}
		host, found := strings.CutSuffix(fields[local], port)
		if found && (strings.HasSuffix(host, four) || strings.Trim(host, "0") == "") {
			inodes = append(inodes, fields[inode])
		}
	}
	return inodes
}

func owns(pid int, inodes []string) (bool, error) {
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(folder)
	if err != nil {
		return false, err
	}
	for _, file := range files {
		to, _ := os.Readlink(filepath.Join(folder, file.Name())) // a closed descriptor matches none of these
		for _, inode := range inodes {
			if to == "socket:["+inode+"]" {
				return true, nil
			}
		}
	}
	return false, nil
}
