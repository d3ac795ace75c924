package yamlfile

import "slices"

// Expect reports whether n is of the kind want. If not, it adds a mistake with the hint cure, unless n is Broken, which
// was reported already.
func (f *File) Expect(n *Node, want Kind, cure string) bool {
	if n.Kind != want && n.Kind != Broken {
		f.Add(n, "%s where %s belongs: %s", n.Kind, want, cure)
	}
	return n.Kind == want
}

// ExpectKeys adds a mistake for each key of n that is not among known, unless it has one already. The mistake names the
// nearest known key, which becomes Wrong, too, if it is likely to be meant.
func (f *File) ExpectKeys(n *Node, known []string) {
	for _, m := range n.Members {
		path := Join(n.Path, m.Key)
		if slices.Contains(known, m.Key) || f.Wrong(path) {
			continue
		}
		f.AddAt(m.Value.Position, path, "unknown key: %s", DidYouMean(m.Key, known))
		if nearest, likely := Nearest(m.Key, known); likely {
			f.wrong[Join(n.Path, nearest)] = true
		}
	}
}

// Missing adds the mistake that n has no member key, unless an unreadable one may be it. cure is the hint.
func (f *File) Missing(n *Node, key, cure string, args ...any) {
	if path := Join(n.Path, key); !n.Partial && !f.Wrong(path) {
		f.AddAt(n.Position, path, "missing: "+cure, args...)
	}
}

// Wrong reports whether a mistake was added at path itself, or at a key that was likely meant to be it, so that further
// mistakes need not be reported.
func (f *File) Wrong(path string) bool { return f.wrong[path] }
