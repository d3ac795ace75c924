package serve

import (
	"log/slog"
	"math"
	"syscall"
)

// filesForOthers is the number of files that a process needs besides connections of clients and to the application:
// connections to the store and to peers, logs, and watched files.
const filesForOthers = 256

// room is the maximum of open connections of each kind.
type room struct {
	connections int // of clients, at each listener
	requests    int // of the proxy, to the application
}

// within returns r, reduced to fit into files. Listeners get even shares, so that none uses up the files that another
// one, such as that of /healthz, needs. 0 files means that the limit is not known.
func (r room) within(files, listeners int) room {
	if files == 0 || listeners*r.connections+r.requests+filesForOthers <= files {
		return r
	}
	shares := listeners
	if r.requests > 0 {
		shares++
	}
	share := max(1, (files-min(filesForOthers, files/2))/shares)
	return room{min(r.connections, share), min(r.requests, share)}
}

// makeRoom bounds connections and requests by the settings, and by the number of files that the process may open.
func (s *service) makeRoom(files int) {
	wanted, listeners := room{connections: s.settings.Connections}, 1
	if s.settings.EnvoyListen != "" {
		listeners++
	}
	if s.settings.Proxies() {
		listeners++
		wanted.requests = s.settings.Proxy.Requests
	}
	s.room = wanted.within(files, listeners)
	if s.room == wanted {
		return
	}
	attrs := []any{slog.Int("files", files), slog.Int("max_connections", s.room.connections)}
	if wanted.requests > 0 {
		attrs = append(attrs, slog.Int("proxy_max_requests", s.room.requests))
	}
	s.log.Warn("the process may not open enough files for --max-connections, so fewer connections are served: raise ulimit -n", attrs...)
}

// openFiles returns the number of files that this process may open, 0 if that is not known. The runtime has raised the
// soft limit to the hard one.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur > math.MaxInt32 {
		return 0
	}
	return int(limit.Cur)
}
