package api

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// Hosts are the host names that requests without authentication may have. Addresses and localhost are always permitted.
//
// Otherwise a web page could let its own name resolve to this machine, and send requests as a page of this server (DNS
// rebinding). It cannot do that by an address, or by a name that it does not own.
type Hosts map[string]struct{}

// hostName is a DNS name without its last dot.
var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// maxHostLen is the maximum length of a DNS name in bytes.
const maxHostLen = 253

// ParseHosts parses names separated by commas. An empty text is the zero value.
func ParseHosts(text string) (Hosts, error) {
	if text == "" {
		return nil, nil
	}
	hosts := make(Hosts)
	for part := range strings.SplitSeq(text, ",") {
		name := strings.ToLower(strings.TrimSpace(part))
		if len(name) > maxHostLen || !hostName.MatchString(name) {
			return nil, fmt.Errorf("%q is not the name of a host: use names such as limits.example.org, without a port, with commas between", part)
		}
		hosts[name] = struct{}{}
	}
	return hosts, nil
}

// accept reports whether requests for host, which may have a port, are permitted.
func (h Hosts) accept(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, listed := h[host]; listed || host == "localhost" {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// addressed returns an error for a request without authentication to another name than those of this server.
func (s *Server) addressed(host string) error {
	if s.opts.Hosts == nil || !s.opts.Keyring.Open() || s.opts.Hosts.accept(host) {
		return nil
	}
	return encode.ErrHost
}
