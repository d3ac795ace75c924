package yamlfile

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

// place is the place of a node to be made.
type place struct {
	path  string
	depth int
	key   Position // of the key that leads there; zero: none
}

func (f *File) convert(from *yaml.Node, at place) *Node {
	n := &Node{Position: at.key, Path: at.path}
	if n.Position == (Position{}) {
		n.Position = startOf(from)
	}
	if at.depth > MaxDepth {
		f.AddAt(n.Position, "", tooDeep, MaxDepth)
		return n
	}
	switch {
	case from.Anchor != "" && !f.foreign:
		f.Add(n, "anchors such as &%s are not supported: write the value out where it is meant", from.Anchor)
	case from.Style&yaml.TaggedStyle != 0:
		f.Add(n, "tags such as %s are not supported: remove it", from.Tag)
		return n
	}
	switch from.Kind {
	case yaml.MappingNode:
		f.convertMap(n, from.Content, at)
	case yaml.SequenceNode:
		n.Kind = List
		for i, item := range from.Content {
			path := fmt.Sprintf("%s[%d]", at.path, i)
			n.Items = append(n.Items, f.convert(item, place{path: path, depth: at.depth + 1}))
		}
	case yaml.AliasNode:
		if f.foreign {
			return f.convertAlias(n, from, at)
		}
		f.Add(n, "aliases such as *name are not supported: write the value out")
	default:
		f.convertScalar(n, from)
	}
	return n
}

// written are the styles of text in quotes or a block.
const written = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func (f *File) convertScalar(n *Node, from *yaml.Node) {
	n.Kind, n.Text = Text, from.Value
	if n.Quoted = from.Style&written != 0; n.Quoted {
		return
	}
	switch from.Tag {
	case "!!int", "!!float":
		n.Kind = Number
	case "!!bool":
		n.Kind = Bool
	case "!!null":
		if n.Kind, n.Text = Null, ""; f.foreign {
			return
		}
		f.Add(n, "has no value: give it one or remove it")
		n.Kind = Broken
	}
}

// convertMap makes n the map of pairs, in which each key is followed by its value.
func (f *File) convertMap(n *Node, pairs []*yaml.Node, at place) {
	n.Kind = Map
	seen := make(map[string]Position, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if f.foreign && isMerge(pairs[i]) {
			continue
		}
		key, ok := f.key(n, pairs[i])
		if !ok {
			n.Partial = true
			continue
		}
		where := startOf(pairs[i])
		path := Join(at.path, key)
		if first, twice := seen[key]; twice {
			f.AddAt(where, path, "this key is on line %d too: keep one of them", first.Line)
			continue
		}
		seen[key] = where
		value := f.convert(pairs[i+1], place{path: path, depth: at.depth + 1, key: where})
		n.Members = append(n.Members, Member{Key: key, Value: value})
	}
	if f.foreign {
		f.merge(n, pairs, at)
	}
}

// key returns the text of a map's key. It adds a mistake and returns false for a key that is not a single word.
func (f *File) key(n *Node, from *yaml.Node) (string, bool) {
	what := ""
	switch {
	case isMerge(from):
		f.AddAt(startOf(from), Join(n.Path, "<<"), "merge keys are not supported: write the members out")
		return "", false
	case from.Anchor != "" && !f.foreign:
		what = "has an anchor"
	case from.Kind == yaml.AliasNode:
		what = "is an alias"
	case from.Kind == yaml.MappingNode:
		what = "is a map"
	case from.Kind == yaml.SequenceNode:
		what = "is a list"
	case from.Style&yaml.TaggedStyle != 0:
		what = "has a tag"
	default:
		return from.Value, true
	}
	f.AddAt(startOf(from), n.Path, "a key that %s is not supported: use one word", what)
	return "", false
}

func startOf(from *yaml.Node) Position { return Position{from.Line, from.Column} }
