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

// hostname returns a host in one form: without its port, in lower case, without the dot at its
// end, an IPv6 address as short as it can be. It is not ok where the host is no name, no address,
// or has more after it than one port: applications differ in what they make of that.
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
