package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// usualTimes are the usual members and columns with the time, the most exact one of a log first.
var usualTimes = []string{"StartUTC", "start_time", "time", "timestamp", "ts", "@timestamp", "time_iso8601"}

// memberAliases are the places of fields in lines of JSON and in columns: under their own names, and those of Caddy,
// Traefik, Envoy and nginx.
var memberAliases = aliases{
	FieldIP: {
		{FieldIP, nil}, {"request.client_ip", nil}, {"request.remote_ip", nil}, {"ClientHost", nil}, {"downstream_remote_address", nil},
		{"client_ip", nil}, {"remote_ip", nil}, {"remote_addr", nil},
	},
	FieldMethod: {
		{FieldMethod, nil}, {"request.method", nil}, {"RequestMethod", nil}, {"request_method", nil}, {"request", methodOf},
	},
	FieldURI: {
		{FieldURI, nil}, {"request.uri", nil}, {"RequestPath", nil}, {"x-envoy-origin-path", nil}, {"request_uri", nil},
		{"request", uriOf}, {FieldPath, nil},
	},
	FieldPath: {
		{FieldPath, pathOf}, {FieldURI, pathOf}, {"request.uri", pathOf}, {"RequestPath", pathOf}, {"x-envoy-origin-path", pathOf},
		{"request_uri", pathOf}, {"request", pathOfRequest},
	},
}

// objects reads lines that are JSON objects.
type objects struct {
	wanted map[string][]wanted // by the path of a member; nil: the path leads to a wanted member
	path   []byte              // of the member that is being read
	noTime error               // error of a line without a time; nil: none is needed
}

func newObjects(opts *Options) (*objects, error) {
	all, err := memberAliases.want(opts, usualTimes, nil)
	names := usualTimes
	if opts.TimeField != "" {
		names = []string{opts.TimeField}
	}
	return objectsOf(all, fmt.Errorf("it has no time in %s: give --time-field", oneOf(names))), err
}

func objectsOf(all []wanted, noTime error) *objects {
	o := &objects{make(map[string][]wanted), nil, noTime}
	for _, w := range all {
		for at, c := range w.source {
			if _, known := o.wanted[w.source[:at]]; c == '.' && !known {
				o.wanted[w.source[:at]] = nil
			}
		}
		o.wanted[w.source] = append(o.wanted[w.source], w)
	}
	return o
}

var errJSON = errors.New("it is not a JSON object")

func (o *objects) parse(line []byte, r *Record) error {
	o.path, r.At = o.path[:0], -1
	s := jsonScan{text: line, objects: o, record: r}
	s.spaces()
	if s.peek() != '{' {
		return errJSON
	}
	if err := s.value(true); err != nil {
		return err
	}
	if s.spaces(); s.at != len(line) {
		return errJSON
	}
	if r.At < 0 {
		return o.noTime
	}
	return nil
}

// leads reports whether the member at path is wanted or contains a wanted one.
func (o *objects) leads() bool {
	_, known := o.wanted[string(o.path)]
	return known
}

// jsonScan reads a line once. It skips values that are not wanted, so it does not find all their mistakes.
type jsonScan struct {
	text    []byte
	at      int
	depth   int
	objects *objects
	record  *Record
}

// maxDepth is the maximum depth of nested objects and lists.
const maxDepth = 64

func (s *jsonScan) spaces() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

func (s *jsonScan) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// value reads the next value; look says whether it, or a part of it, is wanted.
func (s *jsonScan) value(look bool) error {
	switch c := s.peek(); c {
	case '{', '[':
		if s.depth++; s.depth > maxDepth {
			return errJSON
		}
		err := s.members(look, c == '{')
		s.depth--
		return err
	case '"':
		text, err := s.quoted(look)
		if err != nil || !look {
			return err
		}
		return s.found(text)
	}
	start := s.at
	for s.at < len(s.text) && bytes.IndexByte(endsOfWord, s.text[s.at]) < 0 {
		s.at++
	}
	word := s.text[start:s.at]
	switch {
	case len(word) == 0:
		return errJSON
	case look && string(word) != "null":
		return s.found(word)
	}
	return nil
}

var endsOfWord = []byte(",]} \t\r\"{[:")

// members reads an object or a list.
func (s *jsonScan) members(look, named bool) error {
	s.at++
	path := &s.objects.path
	length := len(*path)
	for n := 0; ; n++ {
		s.spaces()
		if c := s.peek(); c == '}' && named || c == ']' && !named {
			s.at++
			return nil
		}
		if n > 0 {
			if s.peek() != ',' {
				return errJSON
			}
			s.at++
			s.spaces()
		}
		inside := look
		if named {
			name, err := s.quoted(look)
			if err != nil {
				return err
			}
			s.spaces()
			if s.peek() != ':' {
				return errJSON
			}
			s.at++
			s.spaces()
			if look {
				inside = s.enter(length, name)
			}
		} else if look {
			inside = s.enter(length, strconv.AppendInt(nil, int64(n), 10))
		}
		if err := s.value(inside); err != nil {
			return err
		}
		*path = (*path)[:length]
	}
}

// enter adds name to the path and reports whether that leads to a wanted member.
func (s *jsonScan) enter(length int, name []byte) bool {
	path := &s.objects.path
	if length > 0 {
		*path = append(*path, '.')
	}
	*path = append(*path, name...)
	return s.objects.leads()
}

// quoted reads a string, or skips it without look.
func (s *jsonScan) quoted(look bool) ([]byte, error) {
	if s.peek() != '"' {
		return nil, errJSON
	}
	start, escaped := s.at, false
	for s.at++; ; s.at++ {
		at := bytes.IndexByte(s.text[s.at:], '"')
		if at < 0 {
			return nil, errJSON
		}
		if back := bytes.IndexByte(s.text[s.at:s.at+at], '\\'); back >= 0 {
			escaped = true
			if s.at += back + 1; s.at >= len(s.text) {
				return nil, errJSON
			}
			continue
		}
		s.at += at + 1
		break
	}
	if !escaped || !look {
		return s.text[start+1 : s.at-1], nil
	}
	var text string
	if json.Unmarshal(s.text[start:s.at], &text) != nil {
		return nil, errJSON
	}
	return []byte(text), nil
}

func (s *jsonScan) found(value []byte) error {
	return fillAll(s.objects.wanted[string(s.objects.path)], s.record, value)
}
