// Package accesslog reads access logs: which files, in which format, in which order of time.
//
// It knows lines, fields and instants, and nothing of policies. A line that can't be read is an
// Unreadable, which says why; the next one can still be read.
package accesslog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Record is what a line says. It is good until the next line is read.
type Record struct {
	At     store.Instant
	Fields [][]byte // in the order of Options.Fields; empty: the line has none, or a dash
}

// Options say what to read of a log. The zero value reads instants only, of a format that the
// first line tells.
type Options struct {
	// Format is FormatAuto, another of Formats, or, with a $ in it, what lines look like, as
	// log_format of nginx has it. Empty: FormatAuto.
	Format string
	// Fields are the names of those that are wanted. Every format knows FieldIP, and those of
	// requests FieldMethod, FieldPath and FieldURI; others are a variable of nginx's, a column,
	// or a member of JSON, where dots lead into objects and lists.
	Fields []string
	// TimeField is the field with the instant; empty: the usual one of the format.
	TimeField string
}

// The fields that formats have in common, each under a name of its own.
const (
	FieldIP     = "ip"     // the client's address, without a port
	FieldMethod = "method" // GET
	FieldPath   = "path"   // /login, without what follows a question mark
	FieldURI    = "uri"    // /login?next=a
)

// The formats there are beside those that a text with a $ describes.
const (
	FormatAuto     = "auto"
	FormatCombined = "combined"
	FormatCaddy    = "caddy"
	FormatEnvoy    = "envoy"
	FormatTraefik  = "traefik"
	FormatNDJSON   = "ndjson"
	FormatCSV      = "csv"
)

// Formats returns the names of all formats, as Options take them.
func Formats() []string {
	return []string{FormatAuto, FormatCombined, FormatCaddy, FormatEnvoy, FormatTraefik, FormatNDJSON, FormatCSV}
}

// CheckFormat returns what is wrong with a Format of Options.
func CheckFormat(format string) error {
	if strings.Contains(format, "$") {
		_, err := splitTemplate(format)
		return err
	}
	for _, known := range Formats() {
		if format == known {
			return nil
		}
	}
	return fmt.Errorf("%q is not known: use one of %s, or what lines look like, such as '$remote_addr [$time_local] \"$request\"'",
		format, strings.Join(Formats(), ", "))
}

// parser reads lines of one format.
type parser interface {
	// parse reads line into r, whose fields are empty. The error says what is wrong with the line.
	parse(line []byte, r *Record) error
}

// wanted is a field to be filled in: from what part of which source.
type wanted struct {
	slot   int // of Record.Fields; slotTime: it is the instant
	source string
	part   func([]byte) []byte // nil: the whole
}

const slotTime = -1

// fill writes value, which is w's source, into r.
func (w *wanted) fill(r *Record, value []byte) (err error) {
	if w.slot == slotTime {
		r.At, err = parseInstant(value)
		return err
	}
	if w.part != nil {
		value = w.part(value)
	}
	if len(value) == 1 && value[0] == '-' {
		value = nil
	}
	r.Fields[w.slot] = value
	return nil
}

// source is where a field of a common name is in a format.
type source struct {
	name string
	part func([]byte) []byte
}

// aliases are where fields of common names are: the first that a format has.
type aliases map[string][]source

// want returns what to fill in for opts. has says whether the format has a field at all; nil: that
// is known of each line only.
func (a aliases) want(opts *Options, timeField string, has func(string) bool) ([]wanted, error) {
	if opts.TimeField != "" {
		timeField = opts.TimeField
	}
	if timeField == "" {
		return nil, errors.New("which field has the time? give --time-field")
	}
	if has != nil && !has(timeField) {
		return nil, fmt.Errorf("the format has no field %q with the time: give --time-field", timeField)
	}
	all := []wanted{{slot: slotTime, source: timeField}}
	for i, field := range opts.Fields {
		found, err := a.find(field, has)
		if err != nil {
			return nil, err
		}
		all = append(all, wanted{slot: i, source: found.name, part: found.part})
	}
	return all, nil
}

func (a aliases) find(field string, has func(string) bool) (source, error) {
	if has != nil && has(field) {
		return source{name: field}, nil
	}
	for _, s := range a[field] {
		if has == nil || has(s.name) {
			return s, nil
		}
	}
	if has == nil {
		return source{name: field}, nil
	}
	return source{}, fmt.Errorf("the format has no field %q", field)
}

// Unreadable is a line that could not be read.
type Unreadable struct {
	File string
	Line int    // from 1 on
	Why  string // in a few words, without the line's own
	Text string // the line, cut to maxShown bytes: it may hold identifiers
}

// maxShown is how much of an Unreadable's line is kept.
const maxShown = 200
