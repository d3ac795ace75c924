package proxy

import (
	"net/netip"
	"regexp"
	"strings"
)

var (
	hostLabels = regexp.MustCompile(`^[a-z0-9_-]+(\.[a-z0-9_-]+)*$`)
	hostPort   = regexp.MustCompile(`^[0-9]{1,5}$`)
)

// hostname returns the canonical form of a host: without a port, in lower case, without a dot at its end, and an IPv6
// address in its shortest form. ok is false unless it is a name or an address with at most a port, because applications
// read other forms differently.
func hostname(host string) (name string, ok bool) {
	name, port := host, ""
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexByte(host, ']') {
		if name, port = host[:colon], host[colon+1:]; !hostPort.MatchString(port) {
			return "", false
		}
	}
	if inner, bracketed := strings.CutPrefix(name, "["); bracketed {
		inner, closed := strings.CutSuffix(inner, "]")
		address, err := netip.ParseAddr(inner)
		return "[" + address.String() + "]", closed && err == nil && address.Is6() && address.Zone() == ""
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return name, hostLabels.MatchString(name)
}
