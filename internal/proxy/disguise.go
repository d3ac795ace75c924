package proxy

import (
	"net/http"
	"strings"
)

// headerNames are names of headers, in canonical form.
type headerNames map[string]struct{}

// countedBy returns the headers that requests are counted by, or told from others: those of
// the routes, and those that tell the application of addresses.
func countedBy(routes []Route) headerNames {
	names := headerNames{}
	add := func(more ...string) {
		for _, name := range more {
			names[name] = struct{}{}
		}
	}
	add("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")
	for i := range routes {
		for name := range routes[i].Headers {
			add(name)
		}
		for j := range routes[i].Limits {
			add(routes[i].Limits[j].Identify.Headers()...)
		}
	}
	return names
}

// dashes turns a name into the one that many applications take it for: to CGI and its heirs
// X_Api_Key is X-Api-Key, and to some X.Api.Key is, too.
var dashes = strings.NewReplacer("_", "-", ".", "-")

// dropDisguised removes what applications may take for one of names, and the proxy does not.
func (names headerNames) dropDisguised(h http.Header) {
	for name := range h {
		if !strings.ContainsAny(name, "_.") {
			continue
		}
		if _, counted := names[http.CanonicalHeaderKey(dashes.Replace(name))]; counted {
			if _, itself := names[name]; !itself {
				delete(h, name)
			}
		}
	}
}
