package proxy

import (
	"net/http"
	"net/textproto"
	"strings"
)

// dropHopByHop removes what Connection names from a client's headers: it is for this
// connection alone (RFC 9110, section 7.6.1), so the application will not see it, and nobody is
// to be known, or to be on a route, by what it does not see. Headers of trusted proxies stay, such as those in kept: a
// client may not take them away.
func dropHopByHop(h http.Header, kept headerNames) {
	for _, named := range h["Connection"] {
		for name := range strings.SplitSeq(named, ",") {
			switch name = http.CanonicalHeaderKey(textproto.TrimString(name)); name {
			case "Upgrade", "Te": // the parts of these that are passed on are
			case "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto": // nor are these, but by whom is trusted
			default:
				if !kept.has(name) {
					delete(h, name)
				}
			}
		}
	}
}

// hopByHop are the headers that are for one connection alone, whether Connection names them or
// not (RFC 9110, section 7.6.1; RFC 9112, section 9.3).
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
