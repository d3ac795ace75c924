package policyfile

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// needWindow adds a mistake if l, which is read from n, has no window, or has it under the name for other algorithms.
func needWindow(f *yamlfile.File, n *yamlfile.Node, l *policy.Limit) {
	if n.Kind != yamlfile.Map {
		return
	}
	name, need := "window", "give the length of the window, such as 1h"
	other, cure := n.Member("hold"), "only a "+policy.Concurrent.Name+" has it: write window"
	if l.IsConcurrent() {
		name, need = "hold", "give the time that an unreleased unit counts, such as 30s: somewhat longer than the longest request"
		other, cure = n.Member("window"), "a "+policy.Concurrent.Name+" has none: write hold, and how long a unit counts that nobody releases"
	}
	switch {
	case other != nil:
		f.Add(other, "%s", cure)
	case n.Member(name) == nil:
		f.Missing(n, name, "%s", need)
	}
}
