package yamlfile

import "slices"

// Expect reports whether n is of the kind wanted. It adds a mistake that ends in
// cure when it is of another; a Broken node was told of already.
func (f *File) Expect(n *Node, want Kind, cure string) bool {
	if n.Kind != want && n.Kind != Broken {
		f.Add(n, "%s where %s belongs: %s", n.Kind, want, cure)
	}
	return n.Kind == want
}

// ExpectKeys adds a mistake for each key of n that is not among known, unless one was added
// there before, with the nearest of them, which is then Wrong too when it is likely to be meant.
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

// Missing adds the mistake that n has no member key, unless one that can't be read may be it. cure says what to write.
func (f *File) Missing(n *Node, key, cure string, args ...any) {
	if path := Join(n.Path, key); !n.Partial && !f.Wrong(path) {
		f.AddAt(n.Position, path, "missing: "+cure, args...)
	}
}

// Wrong reports whether a mistake was added at path itself, or in a key that was
// likely to be meant for it: what is missing or odd there has been told.
func (f *File) Wrong(path string) bool { return f.wrong[path] }
