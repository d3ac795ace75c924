package policyfile

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// fromRequest is the value of from for limits that demands bring.
const fromRequest = "request"

// readLimit reads the units that a window may hold: a number, or a map for limits that requests bring.
func readLimit(f *yamlfile.File, n *yamlfile.Node, l *policy.Limit) {
	if n.Kind == yamlfile.Map {
		readMap(f, n, requestMembers, "write {from: request, max: 1000, default: 100} or the like", l)
		return
	}
	limitUnits.read(f, n, l)
}

// readFrom reads the source of a limit's number.
func readFrom(f *yamlfile.File, n *yamlfile.Node, _ *policy.Limit) {
	if text, ok := readWord(f, n); ok && text != fromRequest {
		f.Add(n, "%q is not known: use %s", text, fromRequest)
	}
}

// derivedRequests warns of policies that p derives and whose limit comes with requests, because derived demands bring
// none.
func derivedRequests(p *policy.Policy, byName map[string]*policy.Policy) (told []string) {
	for _, d := range p.Derive {
		if of := byName[d.Policy]; of != nil && of.FromRequest() >= 0 {
			l := of.Limits[of.FromRequest()].WithDefaults()
			told = append(told, fmt.Sprintf("policy %s: what %s derives brings no limit, so the limit %s holds its default there, %d: "+
				"write a number, or ask for both policies in one call and derive nothing", of.Name, p.Name, l.Name, l.Limit))
		}
	}
	return told
}
