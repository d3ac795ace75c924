package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// headerNames are names of headers, in canonical form.
type headerNames map[string]struct{}

// overriding are the headers that some applications and frameworks go by in place of a request's
// method, path or query, which routes are found by.
var overriding = []string{
	"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Method", "X-Forwarded-Method",
	"X-Original-Url", "X-Original-Uri", "X-Rewrite-Url", "X-Forwarded-Path", "X-Forwarded-Uri",
}

// ParseKeepHeaders reads names of headers with commas between, which Options.KeepHeaders may have;
// "none" and empty text are none.
func ParseKeepHeaders(text string) (names []string, err error) {
	if text = strings.TrimSpace(text); text == "" || text == "none" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name := http.CanonicalHeaderKey(strings.TrimSpace(part))
		if !slices.Contains(overriding, name) {
			return nil, fmt.Errorf("%.64q is no header that the proxy removes: use some of %s, or none", part, strings.Join(overriding, ", "))
		}
		names = append(names, name)
	}
	return names, nil
}

// drop removes all of names.
func (names headerNames) drop(h http.Header) {
	for name := range names {
		delete(h, name)
	}
}

// dropped returns the headers that requests lose: those that override what routes match on, but for those that routes
// match on themselves and those that are kept.
func dropped(counted headerNames, kept []string) headerNames {
	names := headerNames{}
	for _, name := range overriding {
		if !counted.has(name) && !slices.Contains(kept, name) {
			names[name] = struct{}{}
		}
	}
	return names
}

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
			if name := routes[i].Limits[j].Limit; name != "" {
				add(name)
			}
		}
	}
	return names
}

// dashes turns a name into the one that many applications take it for: to CGI and its heirs
// X_Api_Key is X-Api-Key, and to some X.Api.Key is, too.
var dashes = strings.NewReplacer("_", "-", ".", "-")

// dropDisguised removes headers that applications may take for one of names, and the proxy does not.
func (names headerNames) dropDisguised(h http.Header) {
	for name := range h {
		if !strings.ContainsAny(name, "_.") {
			continue
		}
		if names.has(http.CanonicalHeaderKey(dashes.Replace(name))) && !names.has(name) {
			delete(h, name)
		}
	}
}

func (names headerNames) has(name string) bool {
	_, ok := names[name]
	return ok
}
