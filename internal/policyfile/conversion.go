package policyfile

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// needAfter adds a mistake if a conversion has no number of units, or two, or has it under the name for other limits.
func needAfter(f *yamlfile.File, n *yamlfile.Node) {
	limit, after, by, unconfirmed := n.Member("limit"), n.Member("after"), n.Member("by"), n.Member("unconfirmed")
	switch {
	case limit != nil:
		f.Add(limit, "a %s has none: write after, and how many units may be sent before too few are confirmed", policy.Conversion.Name)
	case unconfirmed != nil && (after != nil || by != nil):
		f.Add(unconfirmed, "after and by say otherwise how many units pass: keep unconfirmed alone, or remove it")
	case unconfirmed != nil:
	case after != nil && by != nil:
		f.Add(after, "by says it, for all others under default: remove after, or by")
	case after == nil && by == nil:
		f.Missing(n, "after", "say after how many units too few confirmed ones deny, such as 50")
	}
}

// readUnconfirmed reads the maximum of unconfirmed units, for all or for some identifiers.
func readUnconfirmed(f *yamlfile.File, n *yamlfile.Node, l *policy.Limit) {
	l.Unconfirmed = true
	if n.Kind == yamlfile.Map {
		readBy(f, n, l)
		return
	}
	limitUnits.read(f, n, l)
}
