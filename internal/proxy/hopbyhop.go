package proxy

import (
	"net/http"
	"net/textproto"
	"strings"
)

// dropHopByHop removes the headers that Connection names, which are for this connection only (RFC 9110, section 7.6.1).
// The application does not see them, so they must not identify a caller or select a route. Headers of trusted proxies
// stay, as do those in kept: a client must not be able to remove them.
func dropHopByHop(h http.Header, kept headerNames) {
	for _, named := range h["Connection"] {
		for name := range strings.SplitSeq(named, ",") {
			switch name = http.CanonicalHeaderKey(textproto.TrimString(name)); name {
			case "Upgrade", "Te": // parts of these are passed on
			case "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto": // only trusted proxies remove these
			default:
				if !kept[name] {
					delete(h, name)
				}
			}
		}
	}
}

// hopByHop are the headers that are for one connection only, even if Connection does not name them (RFC 9110, section
// 7.6.1; RFC 9112, section 9.3).
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade",
}

// keepEndToEnd removes hop-by-hop headers from an interim answer (1xx). httputil removes those of
// other answers. upgrade keeps the headers that say which protocol the connection changes to.
func keepEndToEnd(h http.Header, upgrade bool) {
	to := h["Upgrade"]
	upgrade = upgrade && strings.Contains(strings.ToLower(strings.Join(h["Connection"], ",")), "upgrade")
	dropHopByHop(h, nil)
	for _, name := range hopByHop {
		delete(h, name)
	}
	delete(h, CostHeader)
	if upgrade && to != nil {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, to
	}
}
