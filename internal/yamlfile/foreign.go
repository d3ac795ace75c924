package yamlfile

import "go.yaml.in/yaml/v4"

// maxExpanded is the maximum of nodes that aliases expand to. Nine lines can expand to a billion.
const maxExpanded = 100_000

// ParseForeign parses a file of another program, which may have missing values, anchors, aliases, merge keys and
// several documents.
func ParseForeign(name string, data []byte) *File {
	f := &File{Name: name, wrong: make(map[string]bool), foreign: true}
	f.parse(data)
	return f
}

// convertAlias returns the expansion of the alias from at the place of n.
func (f *File) convertAlias(n *Node, from *yaml.Node, at place) *Node {
	if f.expanded > maxExpanded {
		return n // it was reported
	}
	if f.expanded += sizeOf(from.Alias, maxExpanded+1-f.expanded); f.expanded > maxExpanded {
		f.AddAt(n.Position, "", "aliases stand for more than %d values: write the values out", maxExpanded)
		return n
	}
	at.depth++ // it may be recursive
	return f.convert(from.Alias, at)
}

// sizeOf returns the number of nodes in n, at most most, without the expansions of aliases.
func sizeOf(n *yaml.Node, most int) int {
	size := 1
	for _, below := range n.Content {
		if size >= most {
			break
		}
		size += sizeOf(below, most-size)
	}
	return size
}

func isMerge(key *yaml.Node) bool { return key.Tag == "!!merge" && key.Style&written == 0 }

// merge adds the members of merged maps to n, the map of pairs, unless it has them itself. The first merged map wins.
func (f *File) merge(n *Node, pairs []*yaml.Node, at place) {
	has := make(map[string]bool)
	for _, m := range n.Members {
		has[m.Key] = true
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if !isMerge(pairs[i]) {
			continue
		}
		merged := []*Node{f.convert(pairs[i+1], place{path: at.path, depth: at.depth + 1})}
		if merged[0].Kind == List {
			merged = merged[0].Items
		}
		for _, from := range merged {
			f.Expect(&Node{Position: startOf(pairs[i]), Path: Join(at.path, "<<"), Kind: from.Kind}, Map, "only maps can be merged")
			for _, m := range from.Members {
				if !has[m.Key] {
					has[m.Key] = true
					n.Members = append(n.Members, m)
				}
			}
		}
	}
}
