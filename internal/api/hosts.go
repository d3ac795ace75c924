package api

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// Hosts are names that requests may be sent to without authentication. Addresses
// and localhost go without saying, and are all that the zero value has.
//
// A page in a browser on this machine can have its own name lead here, and ask as if it were
// a page of this server (DNS rebinding). It can do so by no address, and by no other name.
type Hosts map[string]struct{}

// hostName is a DNS name without its last dot.
var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// maxHostLen is that of a DNS name in bytes.
const maxHostLen = 253

// ParseHosts parses names with commas between; none: the zero value.
func ParseHosts(text string) (Hosts, error) {
	if text == "" {
		return nil, nil
	}
	hosts := make(Hosts)
	for part := range strings.SplitSeq(text, ",") {
		name := strings.ToLower(strings.TrimSpace(part))
		if len(name) > maxHostLen || !hostName.MatchString(name) {
			return nil, fmt.Errorf("%q is no name of a host: use names such as limits.example.org, without a port, with commas between", part)
		}
		hosts[name] = struct{}{}
	}
	return hosts, nil
}

// accept reports whether a request may name host, which may have a port.
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

// addressed refuses requests to a name that is none of this server's, where there is no authentication.
func (s *Server) addressed(host string) error {
	if s.opts.Hosts == nil || !s.opts.Keyring.Open() || s.opts.Hosts.accept(host) {
		return nil
	}
	return encode.ErrHost
}
