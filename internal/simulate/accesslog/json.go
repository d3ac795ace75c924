package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
)

// usualTimes are the usual members and columns with the time, the most exact one of a log first.
var usualTimes = []string{"StartUTC", "start_time", "time", "timestamp", "ts", "@timestamp", "time_iso8601"}

// commonMembers are the places of common fields in lines of JSON and in columns: under their own names, and those of
// Caddy, Traefik, Envoy and nginx.
var commonMembers = map[string][]source{
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
	anything := func(string) bool { return true }
	all, err := layout{usualTimes, commonMembers, anything, true}.want(opts)
	names := usualTimes
	if opts.TimeField != "" {
		names = []string{opts.TimeField}
	}
	return objectsOf(all, fmt.Errorf("it has no time in %s: give --time-field", oneOf(names))), err
}

func objectsOf(all map[string][]wanted, noTime error) *objects {
	o := &objects{maps.Clone(all), nil, noTime}
	for path := range all {
		for at, c := range path {
			if c == '.' {
				o.wanted[path[:at]] = all[path[:at]]
			}
		}
	}
	return o
}

var errJSON = errors.New("it is not a JSON object")

func (o *objects) parse(line []byte, r *Record) error {
	o.path, r.At = o.path[:0], -1
	s := jsonScan{rest: line, objects: o, record: r}
	if !s.take('{') {
		return errJSON
	}
	if err := s.members(true, '}'); err != nil {
		return err
	}
	if len(bytes.TrimSpace(s.rest)) > 0 {
		return errJSON
	}
	if r.At < 0 {
		return o.noTime
	}
	return nil
}

// jsonScan reads a line once. It skips values that are not wanted, so it does not find all their mistakes.
type jsonScan struct {
	rest    []byte // of the line
	depth   int
	objects *objects
	record  *Record
}

// maxDepth is the maximum depth of nested objects and lists.
const maxDepth = 64

// take skips spaces, and c if that is next. It reports whether it was.
func (s *jsonScan) take(c byte) bool {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// value reads the next value; look says whether it, or a part of it, is wanted.
func (s *jsonScan) value(look bool) error {
	switch {
	case s.take('{'):
		return s.members(look, '}')
	case s.take('['):
		return s.members(look, ']')
	case s.take('"'):
		text, err := s.quoted(look)
		if err != nil || !look {
			return err
		}
		return s.found(text)
	}
	word := s.rest
	if end := bytes.IndexAny(word, endsOfWord); end >= 0 {
		word = word[:end]
	}
	s.rest = s.rest[len(word):]
	switch {
	case len(word) == 0:
		return errJSON
	case look && string(word) != "null":
		return s.found(word)
	}
	return nil
}

const endsOfWord = ",]} \t\r\"{[:"

// members reads an object or a list up to end, its closing bracket.
func (s *jsonScan) members(look bool, end byte) error {
	if s.depth++; s.depth > maxDepth {
		return errJSON
	}
	path := &s.objects.path
	length := len(*path)
	for n := 0; !s.take(end); n++ {
		if n > 0 && !s.take(',') {
			return errJSON
		}
		inside := look
		if end == '}' {
			if !s.take('"') {
				return errJSON
			}
			name, err := s.quoted(look)
			if err != nil || !s.take(':') {
				return errJSON
			}
			inside = look && s.enter(name)
		} else if look {
			inside = s.enter(strconv.AppendInt(nil, int64(n), 10))
		}
		if err := s.value(inside); err != nil {
			return err
		}
		*path = (*path)[:length]
	}
	s.depth--
	return nil
}

// enter adds name to the path, and reports whether the member there is wanted or contains a wanted one.
func (s *jsonScan) enter(name []byte) bool {
	path := &s.objects.path
	if len(*path) > 0 {
		*path = append(*path, '.')
	}
	*path = append(*path, name...)
	_, leads := s.objects.wanted[string(*path)]
	return leads
}

// quoted reads the rest of a string. Without look it leaves escapes as they are.
func (s *jsonScan) quoted(look bool) ([]byte, error) {
	escaped := false
	for at := 0; at < len(s.rest); at++ {
		switch s.rest[at] {
		case '\\':
			escaped = true
			at++
		case '"':
			text := s.rest[:at]
			s.rest = s.rest[at+1:]
			if !escaped || !look {
				return text, nil
			}
			var unescaped string
			if json.Unmarshal(fmt.Appendf(nil, `"%s"`, text), &unescaped) != nil {
				return nil, errJSON
			}
			return []byte(unescaped), nil
		}
	}
	return nil, errJSON
}

func (s *jsonScan) found(value []byte) error {
	return fillAll(s.objects.wanted[string(s.objects.path)], s.record, value)
}
