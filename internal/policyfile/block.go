package policyfile

import (
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// blockTime reads the duration of a block into a field of the policy. It refuses 0, which stands for the default if the
// member is left out.
func blockTime(field func(*policy.Policy) *time.Duration) func(*yamlfile.File, *yamlfile.Node, *policy.Policy) {
	read := duration(field)
	return func(f *yamlfile.File, n *yamlfile.Node, p *policy.Policy) {
		read(f, n, p)
		if *field(p) == 0 && !f.Wrong(n.Path) {
			f.Add(n, "%s is out of range: use %s to %s, or remove it",
				n.Text, policy.FormatWindow(policy.MinWindow), policy.FormatWindow(policy.MaxWindow))
		}
	}
}

// needsBlockFor reports whether path is about blocks whose block_for is itself wrong.
func needsBlockFor(f *yamlfile.File, n *yamlfile.Node, path string) bool {
	return strings.HasPrefix(path, "block_") && f.Wrong(yamlfile.Join(n.Path, "block_for"))
}
