package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// headerNames is a set of names of headers, in canonical form.
type headerNames map[string]bool

// add adds names.
func (set headerNames) add(names ...string) {
	for _, name := range names {
		set[name] = true
	}
}

// overriding are the headers that some applications and frameworks use in place of the method, path or query that
// routes match on.
var overriding = []string{
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Method", "X-Forwarded-Method",
	"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Forwarded-Path", "X-Forwarded-Uri",
}

// ParseKeepHeaders parses names of headers for Options.KeepHeaders, separated by commas. "none" and an empty text are
// none.
func ParseKeepHeaders(text string) (names []string, err error) {
	if text = strings.TrimSpace(text); text == "" || text == "none" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name := http.CanonicalHeaderKey(strings.TrimSpace(part))
		if !slices.Contains(overriding, name) {
			return nil, fmt.Errorf("%.64q is not a header that the proxy removes: use some of %s, or none", part, strings.Join(overriding, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

// drop removes the headers of the set.
func (set headerNames) drop(h http.Header) {
	for name := range set {
		delete(h, name)
	}
}

// dropped returns the headers to remove from requests: those in overriding, except those that routes match on and those
// that are kept.
func dropped(counted headerNames, kept []string) headerNames {
	names := headerNames{}
	for _, name := range overriding {
		if !counted[name] && !slices.Contains(kept, name) {
			names.add(name)
		}
	}
	return names
}

// countedBy returns the headers that identify or match requests: those of the routes, and those with addresses of
// clients.
func countedBy(routes []Route) headerNames {
	names := headerNames{}
	names.add("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip")
	for i := range routes {
		names.add(slices.Collect(maps.Keys(routes[i].Headers))...)
		for _, l := range routes[i].Limits {
			names.add(append(l.Identify.Headers(), l.Limit)...)
		}
	}
	delete(names, "") // of limits without a header
	return names
}

// dashes replaces the characters of a name that many applications read as dashes: for CGI and its successors X_Api_Key
// is X-Api-Key, and for some X.Api.Key is, too.
var dashes = strings.NewReplacer("_", "-", ".", "-")

// dropDisguised removes headers that applications, but not the proxy, may take for one of the set.
func (set headerNames) dropDisguised(h http.Header) {
	for name := range h {
		if strings.ContainsAny(name, "_.") && set[http.CanonicalHeaderKey(dashes.Replace(name))] && !set[name] {
			delete(h, name)
		}
	}
}
