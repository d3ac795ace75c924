package policyfile

import (
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// addProblems adds the problems of the policy at n, except consequences of a mistake that was reported already.
func addProblems(f *yamlfile.File, n *yamlfile.Node, problems []policy.Problem) {
	for _, p := range problems {
		at := n.Find(p.Path)
		path := yamlfile.Join(n.Path, p.Path)
		present := at.Path == path
		switch {
		case f.Wrong(path):
		case !present && (at.Kind == yamlfile.Broken || f.Wrong(at.Path) || at.Partial):
		case !present && madeOf(f, n, p.Path, problems):
		case needsBlockFor(f, n, p.Path):
		case needsWindow(f, n, p.Path):
		default:
			f.AddAt(at.Position, path, "%s", p.Message)
		}
	}
}

// needsBlockFor reports whether path is about blocks whose block_for is itself wrong.
func needsBlockFor(f *yamlfile.File, n *yamlfile.Node, path string) bool {
	return strings.HasPrefix(path, "block_") && f.Wrong(yamlfile.Join(n.Path, "block_for"))
}

// needsWindow reports whether path is the time zone of a window that is itself wrong, and may have been meant as a
// calendar.
func needsWindow(f *yamlfile.File, n *yamlfile.Node, path string) bool {
	limit, isZone := strings.CutSuffix(path, ".timezone")
	return isZone && f.Wrong(yamlfile.Join(n.Path, limit+".window"))
}

// madeOf reports whether path is the default name of a limit, which is made of an algorithm or a window that is itself
// wrong.
func madeOf(f *yamlfile.File, n *yamlfile.Node, path string, problems []policy.Problem) bool {
	limit, isName := strings.CutSuffix(path, ".name")
	if !isName {
		return false
	}
	for _, part := range []string{limit + ".algorithm", limit + ".window", limit + ".hold"} {
		if f.Wrong(yamlfile.Join(n.Path, part)) {
			return true
		}
		for _, p := range problems {
			if p.Path == part {
				return true
			}
		}
	}
	return false
}
