// Package accesslog reads access logs: which files, in which format, in which order of time.
//
// It knows lines, fields and instants, and nothing of policies. A line that can't be read is an
// Unreadable, which says why; the next one can still be read.
package accesslog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Record has the fields of a line. It is good until the next line is read.
type Record struct {
	At     store.Instant
	Fields [][]byte // in the order of Options.Fields; empty: the line has none, or a dash

	listed    bool    // FieldIP is the first of several addresses
	forwarded bool    // the line has X-Forwarded-For beside the address that FieldIP is
	ranks     []uint8 // of the source that each field is from, the time's first; unset: there is none yet
}

// unset is the rank of a field that no source has filled.
const unset = 255

func newRecord(fields int) *Record {
	r := &Record{Fields: make([][]byte, fields), ranks: make([]uint8, fields+1)}
	r.reset()
	return r
}

// reset forgets the line that was read.
func (r *Record) reset() {
	clear(r.Fields)
	r.listed, r.forwarded = false, false
	for i := range r.ranks {
		r.ranks[i] = unset
	}
}

// Options say what to read of a log. The zero value reads instants only, of a format that the
// first line tells.
type Options struct {
	// Format is FormatAuto, another of Formats, or, with a $ in it, the format of lines, as log_format of nginx has it.
	// Empty: FormatAuto.
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
	FieldIP     = "ip"     // the client's address, without a port; of several with commas between, the first
	FieldMethod = "method" // GET
	FieldPath   = "path"   // /login, without the query
	FieldURI    = "uri"    // /login?next=a
)

// addressFields are those that have an address of a client.
var addressFields = []string{FieldIP, "remote_addr", "realip_remote_addr", "http_x_forwarded_for", "downstream_remote_address"}

// IsAddress reports whether a field has an address of a client, without a port: lines that have
// something else there are Unreadable.
func IsAddress(field string) bool { return slices.Contains(addressFields, field) }

// The formats there are beside those that a text with a $ describes.
const (
	FormatAuto     = "auto"
	FormatCombined = "combined"
	FormatCaddy    = "caddy"
	FormatEnvoy    = "envoy"
	FormatTraefik  = "traefik"
	FormatHAProxy  = "haproxy" // option httplog
	FormatAWS      = "aws"     // of load balancers: ALB and classic
	FormatNDJSON   = "ndjson"
	FormatCSV      = "csv"
)

// Formats returns the names of all formats, as Options take them.
func Formats() []string {
	return []string{FormatAuto, FormatCombined, FormatCaddy, FormatEnvoy, FormatTraefik, FormatHAProxy, FormatAWS, FormatNDJSON, FormatCSV}
}

// CheckFormat returns an error if format is no Format of Options.
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
	return fmt.Errorf("%q is not known: use one of %s, or the format of lines, such as '$remote_addr [$time_local] \"$request\"'",
		format, strings.Join(Formats(), ", "))
}

// parser reads lines of one format.
type parser interface {
	// parse reads line into r, whose fields are empty. The error says what is wrong with the line.
	parse(line []byte, r *Record) error
}

// wanted is a field to be filled in: from what part of which source.
type wanted struct {
	slot    int // of Record.Fields; slotTime: it is the instant
	source  string
	part    func([]byte) []byte // nil: the whole
	rank    uint8               // of several sources of a slot, the lowest that a line has is taken
	address bool                // it is FieldIP
}

const slotTime = -1

// fill writes value, which is w's source, into r, unless a better source did.
func (w *wanted) fill(r *Record, value []byte) (err error) {
	if w.part != nil {
		value = w.part(value)
	}
	if len(value) == 0 || len(value) == 1 && value[0] == '-' || r.ranks[w.slot+1] < w.rank {
		return nil
	}
	switch {
	case w.slot == slotTime:
		r.At, err = parseInstant(value)
	case w.address:
		r.Fields[w.slot], r.listed, err = parseClient(value)
	default:
		r.Fields[w.slot] = value
	}
	r.ranks[w.slot+1] = w.rank
	return err
}

// source is where a field of a common name is in a format.
type source struct {
	name string
	part func([]byte) []byte
}

// aliases are where fields of common names are, the best first.
type aliases map[string][]source

// want returns what to fill in for opts. timeFields are the usual ones, the best first. has says
// whether the format has a field; nil: that is known of each line only, and every alias is looked for.
func (a aliases) want(opts *Options, timeFields []string, has func(string) bool) ([]wanted, error) {
	all, err := wantTime(opts, timeFields, has)
	if err != nil {
		return nil, err
	}
	for i, field := range opts.Fields {
		found, err := a.find(field, has)
		if err != nil {
			return nil, err
		}
		for rank, s := range found {
			all = append(all, wanted{i, s.name, s.part, uint8(rank), IsAddress(field)})
		}
	}
	return all, nil
}

func wantTime(opts *Options, names []string, has func(string) bool) (all []wanted, err error) {
	if opts.TimeField != "" {
		names = []string{opts.TimeField}
	}
	for rank, name := range names {
		if has == nil || has(name) {
			all = append(all, wanted{slot: slotTime, source: name, rank: uint8(rank)})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the format has no field with the time, which is usually called %s: give --time-field", oneOf(names))
	}
	return all, nil
}

// oneOf returns names as a sentence has them: a, b or c.
func oneOf(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// find returns the sources of a field: one that the format has, or all that lines may have.
func (a aliases) find(field string, has func(string) bool) ([]source, error) {
	if has == nil {
		if known := a[field]; known != nil {
			return known, nil
		}
		return []source{{name: field}}, nil
	}
	if has(field) {
		return []source{{name: field}}, nil
	}
	for _, s := range a[field] {
		if has(s.name) {
			return []source{s}, nil
		}
	}
	return nil, fmt.Errorf("the format has no field %q", field)
}

// Unreadable is a line that could not be read.
type Unreadable struct {
	File string
	Line int    // from 1 on
	Why  string // in a few words, without the line's own
	Text string // the line, cut to maxShown bytes: it may hold identifiers

	noAddress bool
}

// maxShown is how much of an Unreadable's line is kept.
const maxShown = 200
