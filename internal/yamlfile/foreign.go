package yamlfile

import "go.yaml.in/yaml/v4"

// maxExpanded is how many nodes aliases may stand for, each time that they do: nine lines can
// stand for a billion.
const maxExpanded = 100_000

// ParseForeign parses a file of another program: with values left out, anchors,
// aliases, merge keys and several documents.
func ParseForeign(name string, data []byte) *File {
	f := &File{Name: name, wrong: make(map[string]bool), foreign: true}
	f.parse(data)
	return f
}

// convertAlias returns what the alias from, which is where n is, stands for.
func (f *File) convertAlias(n *Node, from *yaml.Node, at place) *Node {
	if f.expanded > maxExpanded {
		return n // that was told
	}
	if f.expanded += sizeOf(from.Alias, maxExpanded+1-f.expanded); f.expanded > maxExpanded {
		f.AddAt(n.Position, "", "aliases stand for more than %d values: write the values out", maxExpanded)
		return n
	}
	at.depth++ // it may stand for what it is in
	return f.convert(from.Alias, at)
}

// sizeOf returns how many nodes n has without those that aliases in it stand for, at most as
// many as are said.
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

// merge gives n, the map of pairs, those members that are merged into it and that it has not
// itself. The first merged map wins.
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
