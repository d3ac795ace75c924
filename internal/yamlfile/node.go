package yamlfile

import (
	"strconv"
	"strings"
)

// Position is a place in a file, counted from 1; 0 is unknown.
type Position struct {
	Line   int
	Column int
}

// Kind is the kind of a node.
type Kind int

// The kinds of node. A Broken one was reported already, and needs no further mistakes.
const (
	Broken Kind = iota
	Map
	List
	Text
	Number // written without quotes
	Bool   // true or false, without quotes
	Null   // a value left out, or null; of ParseForeign only
)

// String returns the kind as a message names it: "a map", "text".
func (k Kind) String() string {
	return [...]string{"nothing", "a map", "a list", "text", "a number", "true or false", "no value"}[k]
}

// Node is one value of a file.
type Node struct {
	Position        // of the key that leads to it, else its own
	Path     string // from the root: "policies[0].limits[1].window"; empty: the root
	Kind     Kind
	Text     string   // of a scalar, without quotes and escapes
	Quoted   bool     // Text that was written in quotes or as a block
	Members  []Member // of a Map, in their order, without repeated ones
	Items    []*Node  // of a List
	Partial  bool     // a Map with an unreadable member, which may be one that seems missing
}

// Member is a key of a Map and its value.
type Member struct {
	Key   string
	Value *Node
}

// Member returns the value under key, nil when n has none.
func (n *Node) Member(key string) *Node {
	for _, m := range n.Members {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

// Find returns the node at path below n, such as "limits[0].window", or its nearest existing ancestor.
func (n *Node) Find(path string) *Node {
	for path != "" {
		var step string
		step, path = firstStep(path)
		next := n.child(step)
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

func (n *Node) child(step string) *Node {
	if !strings.HasPrefix(step, "[") {
		return n.Member(step)
	}
	i, err := strconv.Atoi(strings.Trim(step, "[]"))
	if err != nil || i < 0 || i >= len(n.Items) {
		return nil
	}
	return n.Items[i]
}

// firstStep cuts the first key or index off path.
func firstStep(path string) (step, rest string) {
	path = strings.TrimPrefix(path, ".")
	if end := strings.IndexAny(path[min(1, len(path)):], ".["); end >= 0 {
		return path[:end+1], path[end+1:]
	}
	return path, ""
}

// Join returns the path of the node at path below parent.
func Join(parent, path string) string {
	if parent == "" || path == "" || strings.HasPrefix(path, "[") {
		return parent + path
	}
	return parent + "." + path
}
