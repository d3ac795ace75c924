package yamlfile

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// place is where a node is about to be made.
type place struct {
	path  string
	depth int
	key   Position // of the key that leads there; zero: none
}

func (f *File) convert(from ast.Node, at place) *Node {
	n := &Node{Position: at.key, Path: at.path}
	if n.Position == (Position{}) {
		n.Position = startOf(from)
	}
	if at.depth > MaxDepth {
		f.Add(n, tooDeep, MaxDepth)
		return n
	}
	switch from := from.(type) {
	case *ast.MappingNode:
		f.convertMap(n, from.Values, at)
	case *ast.MappingValueNode:
		f.convertMap(n, []*ast.MappingValueNode{from}, at)
	case *ast.SequenceNode:
		n.Kind = List
		for i, item := range from.Values {
			path := fmt.Sprintf("%s[%d]", at.path, i)
			n.Items = append(n.Items, f.convert(item, place{path: path, depth: at.depth + 1}))
		}
	case *ast.AnchorNode:
		f.Add(n, "anchors such as &%s are not supported: write the value out where it is meant", from.Name)
		at.depth++
		return f.convert(from.Value, at)
	default:
		f.convertScalar(n, from)
	}
	return n
}

func (f *File) convertScalar(n *Node, from ast.Node) {
	switch from := from.(type) {
	case *ast.StringNode:
		n.Kind, n.Text = Text, from.Value
		n.Quoted = from.Token.Type == token.DoubleQuoteType || from.Token.Type == token.SingleQuoteType
	case *ast.LiteralNode:
		n.Kind, n.Text, n.Quoted = Text, from.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		n.Kind, n.Text = Number, from.GetToken().Value
	case *ast.BoolNode:
		n.Kind, n.Text = Bool, from.GetToken().Value
	case *ast.NullNode:
		f.Add(n, "has no value: give it one or remove it")
	case *ast.AliasNode:
		f.Add(n, "aliases such as *name are not supported: write the value out")
	case *ast.TagNode:
		f.Add(n, "tags such as %s are not supported: remove it", from.GetToken().Value)
	default:
		f.Add(n, "a %s is not supported here: write a plain value", from.Type())
	}
}

func (f *File) convertMap(n *Node, values []*ast.MappingValueNode, at place) {
	n.Kind = Map
	seen := make(map[string]Position, len(values))
	for _, v := range values {
		key, ok := f.key(n, v.Key)
		if !ok {
			n.Partial = true
			continue
		}
		where := positionOf(v.Key.GetToken())
		path := Join(at.path, key)
		if first, twice := seen[key]; twice {
			f.AddAt(where, path, "this key is on line %d too: keep one of them", first.Line)
			continue
		}
		seen[key] = where
		value := f.convert(v.Value, place{path: path, depth: at.depth + 1, key: where})
		n.Members = append(n.Members, Member{Key: key, Value: value})
	}
}

// key returns the text of a map's key. It adds a mistake and returns false for a
// key that is no single word.
func (f *File) key(n *Node, from ast.MapKeyNode) (string, bool) {
	where := positionOf(from.GetToken())
	switch from := from.(type) {
	case *ast.StringNode:
		return from.Value, true
	case *ast.MergeKeyNode:
		f.AddAt(where, Join(n.Path, "<<"), "merge keys are not supported: write the members out")
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return from.GetToken().Value, true
	default:
		f.AddAt(where, n.Path, "a key that is a %s is not supported: use one word", from.Type())
	}
	return "", false
}

// startOf returns where from starts; a block map says where its first colon is.
func startOf(from ast.Node) Position {
	switch from := from.(type) {
	case *ast.MappingNode:
		if !from.IsFlowStyle && len(from.Values) > 0 {
			return positionOf(from.Values[0].Key.GetToken())
		}
	case *ast.MappingValueNode:
		return positionOf(from.Key.GetToken())
	}
	return positionOf(from.GetToken())
}

func positionOf(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{}
	}
	return Position{t.Position.Line, t.Position.Column}
}
