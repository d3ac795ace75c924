package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
)

// combinedTemplate is the start of the combined format of nginx and Apache, which is the common
// one and more. What follows the status is read if it is there, so Traefik's is read as well.
const combinedTemplate = `$remote_addr $ident $remote_user [$time_local] "$request" $status $body_bytes_sent` +
	` "$http_referer" "$http_user_agent"`

// combinedNeeds is how many variables of combinedTemplate a line has at least: the common log format's.
const combinedNeeds = 7

// variableAliases are the fields of common names among the variables of nginx.
var variableAliases = aliases{
	FieldIP:     {{"remote_addr", hostOf}, {"realip_remote_addr", hostOf}, {"http_x_forwarded_for", firstOf}},
	FieldMethod: {{"request_method", nil}, {"request", methodOf}},
	FieldURI:    {{"request_uri", nil}, {"request", uriOf}, {"uri", nil}},
	FieldPath:   {{"uri", nil}, {"document_uri", nil}, {"request_uri", pathOf}, {"request", pathOfRequest}},
}

// timeVariables are the variables of nginx with the time, the most exact one first.
var timeVariables = []string{"msec", "time_iso8601", "time_local"}

// variable is one of a template, with the text that follows it.
type variable struct {
	name   string
	until  []byte // what follows it; empty: the end of the line
	wanted []wanted
}

// template reads lines that look all alike.
type template struct {
	start     []byte // before the first variable
	variables []variable
	needs     int // how many variables a line must have
}

var variableName = regexp.MustCompile(`\$\{?([a-z0-9_]+)\}?`)

// splitTemplate returns the variables of text, as log_format of nginx has it.
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
				return nil, fmt.Errorf("nothing stands between $%s and what follows it: nobody can tell where it ends", text[at[2]:at[3]])
			}
		}
		t.variables = append(t.variables, variable{name: text[at[2]:at[3]], until: []byte(text[at[1]:end])})
	}
	return t, nil
}

// newTemplate returns what reads lines that look like text.
func newTemplate(text string, needs int, opts *Options) (*template, error) {
	t, err := splitTemplate(text)
	if err != nil {
		return nil, err
	}
	if needs > 0 {
		t.needs = needs
	}
	all, err := variableAliases.want(opts, t.timeField(), t.has)
	if err != nil {
		return nil, err
	}
	for i := range t.variables {
		for _, w := range all {
			if w.source == t.variables[i].name {
				t.variables[i].wanted = append(t.variables[i].wanted, w)
			}
		}
	}
	return t, nil
}

func (t *template) has(name string) bool {
	for i := range t.variables {
		if t.variables[i].name == name {
			return true
		}
	}
	return false
}

func (t *template) timeField() string {
	for _, name := range timeVariables {
		if t.has(name) {
			return name
		}
	}
	return timeVariables[len(timeVariables)-1]
}

var errShape = errors.New("it does not look like the format")

func (t *template) parse(line []byte, r *Record) error {
	rest, found := bytes.CutPrefix(line, t.start)
	if !found {
		return errShape
	}
	for i := range t.variables {
		v := &t.variables[i]
		value, after, found := v.cut(rest)
		if !found {
			if i+1 < t.needs {
				return fmt.Errorf("%w: there is nothing like %q after $%s", errShape, v.until, v.name)
			}
			if value = rest; i >= t.needs {
				return nil // the format goes on, and the line does not
			}
			after = nil
		}
		for j := range v.wanted {
			if err := v.wanted[j].fill(r, value); err != nil {
				return err
			}
		}
		rest = after
	}
	return nil
}

// cut returns the value of v, which text begins with, and what follows.
func (v *variable) cut(text []byte) (value, after []byte, found bool) {
	if len(v.until) == 0 {
		return text, nil, true
	}
	if v.until[0] == '"' {
		return v.cutQuoted(text)
	}
	if len(v.until) == 1 {
		at := bytes.IndexByte(text, v.until[0])
		if at < 0 {
			return nil, nil, false
		}
		return text[:at], text[at+1:], true
	}
	return bytes.Cut(text, v.until)
}

// cutQuoted is cut for a value that a quote ends: one after a backslash, as Apache writes it,
// does not.
func (v *variable) cutQuoted(text []byte) (value, after []byte, found bool) {
	for from := 0; ; {
		at := bytes.IndexByte(text[from:], '"')
		if at < 0 {
			return nil, nil, false
		}
		if at += from; (at == 0 || text[at-1] != '\\') && bytes.HasPrefix(text[at:], v.until) {
			return text[:at], text[at+len(v.until):], true
		}
		from = at + 1
	}
}
