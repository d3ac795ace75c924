package apidoc_test

import (
	"bytes"
	"encoding/json"
	"strings"
)

// jsonOf is a YAML value that is written as JSON with its members in their order.
type jsonOf struct{ value any }

// MarshalJSON returns the value as JSON.
func (j jsonOf) MarshalJSON() ([]byte, error) {
	switch v := j.value.(type) {
	case object:
		return marshalAll('{', '}', len(v), func(b *bytes.Buffer, i int) error {
			return appendJSON(b, v[i].Key, ":", jsonOf{v[i].Value})
		})
	case []any:
		return marshalAll('[', ']', len(v), func(b *bytes.Buffer, i int) error { return appendJSON(b, jsonOf{v[i]}) })
	}
	return json.Marshal(j.value)
}

// raw text is written as it is.
func appendJSON(b *bytes.Buffer, parts ...any) error {
	for i, part := range parts {
		if text, ok := part.(string); ok && i == 1 {
			b.WriteString(text)
			continue
		}
		encoded, err := json.Marshal(part)
		if err != nil {
			return err
		}
		b.Write(encoded)
	}
	return nil
}

func marshalAll(open, closing byte, n int, item func(b *bytes.Buffer, i int) error) ([]byte, error) {
	b := bytes.NewBuffer([]byte{open})
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := item(b, i); err != nil {
			return nil, err
		}
	}
	b.WriteByte(closing)
	return b.Bytes(), nil
}

// lineLen is the longest line of an example.
const lineLen = 200

// wrap returns valid JSON with a space after each colon and comma, broken where a line
// would be too long.
func wrap(text, indent string) string {
	if flat := spaced(text); len(indent)+len(flat) <= lineLen || !strings.ContainsAny(text[:1], "{[") {
		return flat
	}
	deeper := indent + "  "
	var b strings.Builder
	b.WriteByte(text[0])
	for i, item := range split(text[1 : len(text)-1]) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n" + deeper)
		if text[0] == '{' {
			end := stringEnd(item)
			b.WriteString(item[:end] + ": ")
			item = strings.TrimLeft(item[end:], ": ")
		}
		b.WriteString(wrap(item, deeper))
	}
	b.WriteString("\n" + indent + text[len(text)-1:])
	return b.String()
}

// spaced returns valid JSON on one line.
func spaced(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		b.WriteByte(text[i])
		switch text[i] {
		case '"':
			end := i + stringEnd(text[i:])
			b.WriteString(text[i+1 : end])
			i = end - 1
		case ':', ',':
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// split returns the items within brackets or braces.
func split(text string) (items []string) {
	depth, start := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringEnd(text[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				items, start = append(items, text[start:i]), i+1
			}
		}
	}
	if start < len(text) {
		items = append(items, text[start:])
	}
	return items
}

// stringEnd returns where the JSON string ends that text starts with.
func stringEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}
