package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// commonVariables are the places of common fields among the variables of nginx.
var commonVariables = map[string][]source{
	FieldIP:     {{FieldIP, nil}, {"remote_addr", nil}, {"realip_remote_addr", nil}, {"http_x_forwarded_for", nil}},
	FieldMethod: {{FieldMethod, nil}, {"request_method", nil}, {"request", methodOf}},
	FieldURI:    {{FieldURI, nil}, {"request_uri", nil}, {"request", uriOf}},
	FieldPath:   {{FieldPath, nil}, {"uri", nil}, {"document_uri", nil}, {"request_uri", pathOf}, {"request", pathOfRequest}},
}

// timeVariables are the variables of nginx with the time, the most exact one first.
var timeVariables = []string{"msec", "time_iso8601", "time_local"}

// variable is a variable of a template, with the text after it.
type variable struct {
	name   string
	until  []byte // the text after it; empty: the end of the line
	wanted []wanted
}

// template reads lines of a fixed layout.
type template struct {
	start     []byte // before the first variable
	variables []variable
	needs     int  // number of variables that a line must have
	strict    bool // values without quotes around them must not contain quotes
}

var variableName = regexp.MustCompile(`\$\{?([a-z0-9_]+)\}?`)

// splitTemplate parses text in the form of nginx's log_format.
func splitTemplate(text string) (*template, error) {
	places := variableName.FindAllStringSubmatchIndex(text, -1)
	if len(places) == 0 {
		return nil, fmt.Errorf("%q has no variable: write one as $remote_addr", text)
	}
	t := &template{start: []byte(text[:places[0][0]]), needs: len(places)}
	for i, at := range places {
		end := len(text)
		if i+1 < len(places) {
			if end = places[i+1][0]; end == at[1] {
				return nil, fmt.Errorf("there is no text between $%s and the next variable, so its end can't be found", text[at[2]:at[3]])
			}
		}
		t.variables = append(t.variables, variable{name: text[at[2]:at[3]], until: []byte(text[at[1]:end])})
	}
	return t, nil
}

// newTemplate returns a parser of lines of the form text, with the common fields at the places in common. eachLine is
// that of layout.
func newTemplate(text string, common map[string][]source, eachLine bool, opts *Options) (*template, error) {
	t, err := splitTemplate(text)
	if err != nil {
		return nil, err
	}
	all, err := layout{timeVariables, common, t.has, eachLine}.want(opts)
	if err != nil {
		return nil, err
	}
	t.want(all)
	return t, nil
}

// want sets the fields that are filled in from each variable.
func (t *template) want(all map[string][]wanted) {
	for i := range t.variables {
		t.variables[i].wanted = all[t.variables[i].name]
	}
}

func (t *template) has(name string) bool {
	return slices.ContainsFunc(t.variables, func(v variable) bool { return v.name == name })
}

var errShape = errors.New("it does not look like the format")

func (t *template) parse(line []byte, r *Record) error {
	_, err := t.scan(line, r)
	return err
}

// scan is parse, and returns the text after the last variable.
func (t *template) scan(line []byte, r *Record) (rest []byte, err error) {
	rest, found := bytes.CutPrefix(line, t.start)
	if !found {
		return nil, errShape
	}
	for i := range t.variables {
		v := &t.variables[i]
		value, after, found := v.cut(rest)
		if t.strict && bytes.HasPrefix(v.until, space) && bytes.IndexByte(value, '"') >= 0 {
			found = false
		}
		if !found {
			if i+1 < t.needs {
				return nil, fmt.Errorf("%w: there is nothing like %q after $%s", errShape, v.until, v.name)
			}
			if value = rest; i >= t.needs {
				return nil, nil // the rest of the line is missing
			}
			after = nil
		}
		if err := fillAll(v.wanted, r, value); err != nil {
			return nil, err
		}
		rest = after
	}
	return rest, nil
}

// cut returns the value of v at the start of text, and the text after v.until.
func (v *variable) cut(text []byte) (value, after []byte, found bool) {
	if len(v.until) == 0 {
		return text, nil, true
	}
	if v.until[0] == '"' {
		return v.cutQuoted(text)
	}
	return bytes.Cut(text, v.until)
}

// cutQuoted is cut for a value that ends with a quote. Quotes that are escaped by a backslash, as by Apache, do not end
// it.
func (v *variable) cutQuoted(text []byte) (value, after []byte, found bool) {
	for from := 0; ; {
		at := bytes.IndexByte(text[from:], '"')
		if at < 0 {
			return nil, nil, false
		}
		if at += from; !isEscaped(text, at) && bytes.HasPrefix(text[at:], v.until) {
			return text[:at], text[at+len(v.until):], true
		}
		from = at + 1
	}
}

// isEscaped reports whether an odd number of backslashes precedes text[at].
func isEscaped(text []byte, at int) bool {
	n := 0
	for at-n > 0 && text[at-n-1] == '\\' {
		n++
	}
	return n%2 == 1
}
