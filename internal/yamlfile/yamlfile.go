// Package yamlfile reads the YAML that people write for ratelimitd, strictly and
// with the place of everything, so that all mistakes of a file can be told at once
// and each with its line.
//
// It accepts one document of maps, lists and scalars, and refuses what makes a
// file mean something else than it seems to: duplicate keys, values left out,
// anchors, aliases, merge keys and tags.
//
// The package does not know what any key means and decodes into no Go type: its
// callers walk the nodes.
package yamlfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file.
const (
	MaxSize      = 1 << 20 // bytes; parsing that much takes about a second
	MaxDepth     = 32      // maps and lists within each other; the parser's time grows with its square
	maxReferring = 100     // anchors, aliases and tags before the file is given up; the same
)

// File is a parsed file and the mistakes found in it. Those who walk its nodes add
// theirs by Add and AddAt, and ask for all of them by Err.
type File struct {
	Name string // as the mistakes name it
	Root *Node  // nil when the file holds nothing or could not be parsed

	mistakes Errors
	wrong    map[string]bool // see Wrong
}

// Read returns what is in the file at path, up to one byte more than Parse takes.
// The error is that of the operating system, which names path.
func Read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // was only read
	return io.ReadAll(io.LimitReader(file, MaxSize+1))
}

// Parse parses data, which name is the name of. What is wrong is told by Err; the
// nodes beside a mistake are there all the same, unless it is one of syntax.
func Parse(name string, data []byte) *File {
	f := &File{Name: name, wrong: make(map[string]bool)}
	if !f.readable(data) {
		return f
	}
	data = plain(data)
	tokens := lexer.Tokenize(string(data))
	if !f.bounded(tokens) {
		return f
	}
	parsed, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		f.addSyntax(err, data)
		return f
	}
	if body := f.onlyDocument(parsed.Docs); body != nil {
		f.Root = f.convert(body, place{})
	}
	return f
}

// readable refuses what is not worth parsing.
func (f *File) readable(data []byte) bool {
	if len(data) > MaxSize {
		f.AddAt(Position{Line: 1}, "", "%d bytes: a file may have at most %d", len(data), MaxSize)
		return false
	}
	for i, line := range bytes.Split(data, []byte("\n")) {
		if !utf8.Valid(line) {
			f.AddAt(Position{Line: i + 1}, "", "this line is not UTF-8: save the file in that encoding")
			return false
		}
	}
	return true
}

// plain returns data without a byte order mark and with each line ended by \n
// alone: the parser takes the mark for a letter and counts some \r\n twice.
func plain(data []byte) []byte {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
}

// bounded refuses what the parser would spend minutes on.
func (f *File) bounded(tokens token.Tokens) bool {
	flow, dashes, referring := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.AnchorType, token.AliasType, token.TagType:
			referring++
		}
		if dashes++; t.Type != token.SequenceEntryType {
			dashes = 0
		}
		if flow > MaxDepth || dashes > MaxDepth {
			f.AddAt(positionOf(t), "", tooDeep, MaxDepth)
			return false
		}
		if referring > maxReferring {
			f.AddAt(positionOf(t), "", "more than %d anchors, aliases and tags: write the values out", maxReferring)
			return false
		}
	}
	return true
}

const tooDeep = "more than %d maps and lists within each other: nothing here is nested that deep"

// addSyntax adds the parser's error, in words of its own for tabs, which people
// meet most and see least.
func (f *File) addSyntax(err error, data []byte) {
	var at Position
	message := err.Error()
	var syntax yaml.Error
	if errors.As(err, &syntax) {
		at, message = positionOf(syntax.GetToken()), syntax.GetMessage()
	}
	if strings.Contains(message, "'\t'") && f.addTabs(data) {
		return
	}
	f.AddAt(at, "", "not YAML: %s", message)
}

// addTabs adds every line that a tab indents, and reports whether there is one.
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

// onlyDocument returns the body of the file's one document, nil when it is empty.
func (f *File) onlyDocument(docs []*ast.DocumentNode) ast.Node {
	var body ast.Node
	for _, doc := range docs {
		switch {
		case doc.Body == nil:
		case doc.Body.Type() == ast.DirectiveType:
			f.AddAt(positionOf(doc.Body.GetToken()), "", "a %% directive is not supported: remove it")
		case body != nil:
			f.AddAt(positionOf(doc.Start), "", "a second YAML document starts here: put everything into one")
			return body
		default:
			body = doc.Body
		}
	}
	return body
}
