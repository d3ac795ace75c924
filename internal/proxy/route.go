package proxy

import (
	"net/http"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
)

// Route has the requests that it matches, and their limits. A zero field matches everything.
type Route struct {
	Name    string            // for metrics and the log
	Host    string            // without a port; "*.example.com": any below it
	Path    string            // pattern: /items/{id}, /login.{format}, /files/{rest...}, /files/ with all below it
	Methods []string          // any of them; GET is HEAD, too
	Headers map[string]string // all of them, in canonical form; "*": any value
	Limits  []Limit           // none: requests pass

	segments []string // of Path, lower case
	below    bool     // paths below segments match as well
}

// Limit is a policy that a route's requests are counted under.
type Limit struct {
	Policy   string
	Identify origin.Source
	Limit    string // header of trusted proxies, in canonical form, that brings the policy's limit; empty: none does
	Cost     int64  // units of a request
	Charge   Charge // the units that count
	Served   bool   // a request counts only if its answer has one of Statuses
	Statuses []int  // of which those below 10 are whole classes: 2 is 200 to 299; none: 1, 2 and 3
}

// serves reports whether a request with an answer of this status counts.
func (l *Limit) serves(status int) bool {
	if !l.Served {
		return true
	}
	if len(l.Statuses) == 0 {
		return status < http.StatusBadRequest
	}
	return slices.Contains(l.Statuses, status) || slices.Contains(l.Statuses, status/100)
}

// Charge is the unit that a Limit counts.
type Charge string

// The charges. They are known only after the answer is sent, except requests, and bytes of a request with a
// Content-Length.
const (
	ChargeRequests      Charge = "requests"
	ChargeRequestBytes  Charge = "request-bytes"
	ChargeResponseBytes Charge = "response-bytes"
	ChargeReported      Charge = "reported" // the units in the answer's header CostHeader
)

var charges = []Charge{ChargeRequests, ChargeRequestBytes, ChargeResponseBytes, ChargeReported}

// prepare splits the pattern.
func (route *Route) prepare() {
	route.below = route.Path == "" || strings.HasSuffix(route.Path, "/") || strings.HasSuffix(route.Path, "...}")
	route.segments = trimmed(segmentsOf(strings.ToLower(route.Path)))
	if strings.HasSuffix(route.Path, "...}") {
		route.segments = route.segments[:len(route.segments)-1]
	}
}

// matches reports whether r matches route. Paths are compared without regard to case, as some applications do.
func (route *Route) matches(r *http.Request, host string, segments []string) bool {
	return route.matchesMethod(r.Method) && route.matchesPath(segments) && route.matchesHost(host) && route.matchesHeaders(r.Header)
}

// matchesMethod treats HEAD as GET, because applications do the same work for both, and most have one route for them.
// It ignores case, as some applications do.
func (route *Route) matchesMethod(method string) bool {
	method = strings.ToUpper(method)
	return len(route.Methods) == 0 || slices.Contains(route.Methods, method) ||
		method == http.MethodHead && slices.Contains(route.Methods, http.MethodGet)
}

func (route *Route) matchesPath(segments []string) bool {
	if len(segments) < len(route.segments) || len(segments) > len(route.segments) && !route.below {
		return false
	}
	for i, want := range route.segments {
		if !matchesSegment(want, segments[i]) {
			return false
		}
	}
	return true
}

// matchesSegment reports whether a segment matches a pattern, which may end in {name} for any text.
func matchesSegment(pattern, segment string) bool {
	if before, _, open := strings.Cut(pattern, "{"); open {
		return len(segment) > len(before) && strings.HasPrefix(segment, before)
	}
	return segment == pattern
}

// matchesHost reports whether host, in the form of hostname, matches.
func (route *Route) matchesHost(host string) bool {
	if route.Host == "" {
		return true
	}
	if domain, wild := strings.CutPrefix(route.Host, "*"); wild {
		return strings.HasSuffix(host, domain)
	}
	return host == route.Host
}

func (route *Route) matchesHeaders(h http.Header) bool {
	for name, want := range route.Headers {
		values := h[name]
		if len(values) == 0 || want != "*" && !slices.Contains(values, want) {
			return false
		}
	}
	return true
}
