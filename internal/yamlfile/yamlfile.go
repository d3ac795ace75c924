// Package yamlfile reads YAML files strictly and with the position of each node, so that all mistakes of a file can be
// reported at once, each with its line.
//
// It accepts one document of maps, lists and scalars, and refuses parts that are easily misread: duplicate keys,
// missing values, anchors, aliases, merge keys and tags.
//
// The package does not know the keys, and decodes into no Go type: its callers walk the nodes.
package yamlfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Bounds of a file.
const (
	MaxSize  = 1 << 20 // bytes; parsing that much takes up to two seconds
	MaxDepth = 32      // maps and lists within each other
)

// File is a parsed file and the mistakes found in it. Callers that walk its nodes add theirs by Add and AddAt, and get
// all of them by Err.
type File struct {
	Name string  // as the mistakes name it
	Root *Node   // nil if the file is empty or could not be parsed
	More []*Node // the documents after the first; of ParseForeign only

	foreign  bool
	expanded int // nodes that aliases have been expanded to so far
	mistakes Errors
	wrong    map[string]bool // see Wrong
}

// Read returns the contents of the file at path, up to one byte more than Parse accepts. The error is that of the
// operating system, which names path.
func Read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // was only read
	return io.ReadAll(io.LimitReader(file, MaxSize+1))
}

// Parse parses data, the contents of the file name. Err returns the mistakes; the other nodes are still valid, unless
// the syntax is wrong.
func Parse(name string, data []byte) *File {
	f := &File{Name: name, wrong: make(map[string]bool)}
	f.parse(data)
	return f
}

func (f *File) parse(data []byte) {
	if !f.readable(data) {
		return
	}
	for i, body := range f.documents(bytes.TrimPrefix(data, []byte(mark))) {
		if i == 0 {
			f.Root = f.convert(body, place{})
		} else {
			f.More = append(f.More, f.convert(body, place{}))
		}
	}
}

// mark is the byte order mark that some editors put at the start of a file in UTF-8.
const mark = "\ufeff"

// readable reports whether data can be parsed, and adds a mistake if not.
func (f *File) readable(data []byte) bool {
	if len(data) > MaxSize {
		f.AddAt(Position{Line: 1}, "", "%d bytes: a file may have at most %d", len(data), MaxSize)
		return false
	}
	started := false
	for i, line := range bytes.Split(bytes.TrimPrefix(data, []byte(mark)), []byte("\n")) {
		switch at := bytes.IndexFunc(line, unprintable); {
		case !utf8.Valid(line):
			f.AddAt(Position{Line: i + 1}, "", "this line is not UTF-8: save the file in that encoding")
			return false
		case at >= 0:
			r, _ := utf8.DecodeRune(line[at:])
			f.AddAt(Position{Line: i + 1}, "", "this line has a character that can't be seen (%U): remove it, or escape it within double quotes", r)
			return false
		case !started && bytes.HasPrefix(line, []byte("%")):
			f.AddAt(Position{i + 1, 1}, "", "a %% directive is not supported: remove it")
			return false
		}
		text := bytes.TrimSpace(line)
		started = started || len(text) > 0 && text[0] != '#'
	}
	return true
}

// unprintable reports whether YAML forbids r, or only some parsers read it as the end of a line.
func unprintable(r rune) bool {
	switch r {
	case '\t', '\r':
		return false
	case '\u2028', '\u2029', '\ufeff', '\ufffe', '\uffff':
		return true
	}
	return unicode.IsControl(r)
}

const tooDeep = "more than %d maps and lists within each other: nothing here is nested that deep"

// documents returns the bodies of the documents in data that are not empty: one, or any number of a foreign file; none
// if the syntax is wrong.
func (f *File) documents(data []byte) (bodies []*yaml.Node) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	for err == nil {
		var doc yaml.Node
		if err = loader.Load(&doc); err != nil || len(doc.Content) == 0 || isEmpty(doc.Content[0]) {
			continue
		}
		if len(bodies) > 0 && !f.foreign {
			f.AddAt(startOf(&doc), "", "a second YAML document starts here: put everything into one")
			return bodies
		}
		bodies = append(bodies, doc.Content[0])
	}
	if !errors.Is(err, io.EOF) {
		f.addSyntax(err, data)
		return nil
	}
	return bodies
}

// isEmpty reports whether nothing was written at n.
func isEmpty(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Value == "" && n.Style == 0 && n.Anchor == ""
}

// addSyntax adds the parser's error, with better texts for tabs, which are common and hard to see, and for text that
// begins with a star.
func (f *File) addSyntax(err error, data []byte) {
	var at Position
	message := err.Error()
	var syntax *yaml.LoadError
	if errors.As(err, &syntax) {
		at, message = Position{min(syntax.Mark.Line, linesOf(data)), syntax.Mark.Column}, syntax.Message
	}
	if name, ok := strings.CutPrefix(message, "unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "' referenced")
		f.AddAt(at, "", "*%.64s stands for an anchor, and there is none: put text that begins with a * in quotes", name)
		return
	}
	isTab := strings.Contains(message, "tab") || strings.Contains(message, "cannot start any token")
	if isTab && f.addTabs(data) {
		return
	}
	f.AddAt(at, "", "not YAML: %s", message)
}

// linesOf returns the number of the last line in data with text. The parser may report errors after it.
func linesOf(data []byte) int { return 1 + bytes.Count(bytes.TrimRight(data, " \t\r\n"), []byte("\n")) }

// addTabs adds a mistake for every line that a tab indents, and reports whether there is one.
func (f *File) addTabs(data []byte) bool {
	found := false
	for i, line := range strings.Split(string(data), "\n") {
		indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
		if tab := strings.IndexByte(indent, '\t'); tab >= 0 && len(indent) < len(line) {
			f.AddAt(Position{i + 1, tab + 1}, "", "a tab in the indentation, which YAML forbids: indent by spaces")
			found = true
		}
	}
	return found
}
