package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/origin"
)

// Route says which requests it is of, and what limits them. What is zero matches everything.
type Route struct {
	Name    string            // for metrics and the log
	Host    string            // without a port; "*.example.com": any below it
	Path    string            // pattern: /items/{id}, /files/{rest...}, /files/ with all below it
	Methods []string          // any of them; GET is HEAD, too
	Headers map[string]string // all of them, in canonical form; "*": any value
	Limits  []Limit           // none: requests pass

	segments []string // of Path, lower case
	below    bool     // all below segments is the route's as well
}

// Limit is a policy that a route's requests are counted under.
type Limit struct {
	Policy   string
	Identify origin.Source
	Cost     int64  // units of a request
	Charge   Charge // what is counted
	Served   bool   // a request counts only if its answer has one of Statuses
	Statuses []int  // of which those below 10 are whole classes: 2 is 200 to 299; none: 1, 2 and 3
}

// serves reports whether an answer of this status counts.
func (l *Limit) serves(status int) bool {
	if !l.Served {
		return true
	}
	if len(l.Statuses) == 0 {
		return status < http.StatusBadRequest
	}
	return slices.Contains(l.Statuses, status) || slices.Contains(l.Statuses, status/100)
}

// Charge is what a Limit counts.
type Charge string

// The charges. All but requests are known only once the answer was sent, but for the bytes
// of a request that tells its length.
const (
	ChargeRequests      Charge = "requests"
	ChargeRequestBytes  Charge = "request-bytes"
	ChargeResponseBytes Charge = "response-bytes"
	ChargeReported      Charge = "reported" // what the answer's header CostHeader says
)

var charges = []Charge{ChargeRequests, ChargeRequestBytes, ChargeResponseBytes, ChargeReported}

// prepare splits the pattern.
func (route *Route) prepare() {
	route.below = route.Path == "" || strings.HasSuffix(route.Path, "/") || strings.HasSuffix(route.Path, "...}")
	route.segments = segmentsOf(strings.ToLower(route.Path))
	if strings.HasSuffix(route.Path, "...}") {
		route.segments = route.segments[:len(route.segments)-1]
	}
}

// segmentsOf returns what is between the slashes of a path. Those that are doubled, and one at
// the end, do not count: applications differ in what they make of them, and nobody is to get
// around a limit by them.
func segmentsOf(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
}

// meaningsOf returns the segments of a path by each meaning that applications give it: of an
// escaped slash, which ends a segment or is a part of it, of a backslash, likewise, and of what
// follows a semicolon, which is a part of the segment or a parameter (RFC 3986, section 3.3)
// that does not count.
func meaningsOf(u *url.URL) (meanings [][]string) {
	path := strings.ToLower(u.Path)
	meanings = append(meanings, segmentsOf(path))
	escaped := strings.ToLower(u.EscapedPath())
	if strings.Contains(escaped, "%2f") {
		meanings = append(meanings, segmentsOf(decoded(strings.ReplaceAll(escaped, "%2f", "%00"))))
	}
	if strings.Contains(path, `\`) {
		meanings = append(meanings, rewritten(meanings, func(s string) string { return strings.ReplaceAll(s, `\`, "/") })...)
	}
	if strings.Contains(path, ";") {
		meanings = append(meanings, rewritten(meanings, func(s string) string {
			bare, _, _ := strings.Cut(s, ";")
			return bare
		})...)
	}
	return meanings
}

// rewritten returns what paths mean when each of their segments stands for another text.
func rewritten(meanings [][]string, as func(segment string) string) (others [][]string) {
	for _, segments := range meanings {
		other := make([]string, len(segments))
		for i, s := range segments {
			other[i] = as(s)
		}
		others = append(others, segmentsOf(strings.Join(other, "/")))
	}
	return others
}

// decoded returns an escaped path as it is meant.
func decoded(escaped string) string {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return escaped // never: net/http has read it
	}
	return strings.ToLower(path)
}

// matches reports whether r is one of route's. Paths are compared without regard to case, as
// some applications do.
func (route *Route) matches(r *http.Request, segments []string) bool {
	return route.matchesMethod(r.Method) && route.matchesPath(segments) && route.matchesHost(r.Host) && route.matchesHeaders(r.Header)
}

// matchesMethod takes HEAD for GET: applications do the same work for both, and most have no
// route of its own for it. Capitals make no difference: some applications see none.
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
		if !isParameter(want) && want != segments[i] {
			return false
		}
	}
	return true
}

func isParameter(segment string) bool { return strings.HasPrefix(segment, "{") }

func (route *Route) matchesHost(host string) bool {
	if route.Host == "" {
		return true
	}
	host = hostname(host)
	if domain, wild := strings.CutPrefix(route.Host, "*"); wild {
		return strings.HasSuffix(host, domain)
	}
	return host == route.Host
}

// hostname returns a host without its port and the dot at its end, in lower case.
func hostname(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
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

// leadsAway reports whether a path has parts that lead to another one, which applications
// may go by or not: nobody can tell of which route it is.
func leadsAway(segments []string) bool {
	return slices.ContainsFunc(segments, func(s string) bool { return s == "." || s == ".." })
}
