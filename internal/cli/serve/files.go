package serve

import "log/slog"

// filesForOthers are those that a process keeps open beside clients and applications: connections
// to the store and to peers, logs, and files that it watches.
const filesForOthers = 256

// room is how many connections of each kind may be open at the same time.
type room struct {
	connections int // of clients, at each listener
	requests    int // of the proxy, to the application
}

// within returns as much of r as fits into files, shared evenly: no listener can use up what
// another one, such as that of /healthz, needs. 0 files: nobody knows how many there may be.
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

// makeRoom bounds connections and requests by the settings, and by the files that the process may
// have open.
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
	s.log.Warn("fewer connections are served than the settings name, for so few files may be open: raise ulimit -n", attrs...)
}
