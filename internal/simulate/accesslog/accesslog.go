// Package accesslog reads access logs in several formats, and merges them in the order of time.
//
// It knows lines, fields and instants, and nothing about policies. A line that can't be read is reported as an
// Unreadable, and reading goes on.
package accesslog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Record has the fields of a line. It is valid until the next line is read.
type Record struct {
	At     store.Instant
	Fields [][]byte // in the order of Options.Fields; empty: the line has none, or a dash

	listed    bool    // FieldIP is the first of several addresses
	forwarded bool    // the line has X-Forwarded-For beside the address that FieldIP is
	ranks     []uint8 // rank of the source of each field, the time's first; unset: no source yet
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

// Options of a Reader. The zero value reads instants only, in a format detected by the first line.
type Options struct {
	// Format is one of Formats or, with a $ in it, the format of lines as in nginx's log_format. Empty: FormatAuto.
	Format string
	// Fields are the names of the wanted fields. Every format has FieldIP, and those of requests FieldMethod, FieldPath
	// and FieldURI. Others are a variable of nginx, a column, or a member of JSON, where dots lead into objects and lists.
	Fields []string
	// TimeField is the field with the time; empty: the usual one of the format.
	TimeField string
}

// The common fields of all formats.
const (
	FieldIP     = "ip"     // the client's address, without a port; of several with commas between, the first
	FieldMethod = "method" // GET
	FieldPath   = "path"   // /login, without the query
	FieldURI    = "uri"    // /login?next=a
)

// addressFields are the fields with a client's address.
var addressFields = []string{FieldIP, "remote_addr", "realip_remote_addr", "http_x_forwarded_for", "downstream_remote_address"}

// IsAddress reports whether a field has a client's address, without a port. Lines with other text there are Unreadable.
func IsAddress(field string) bool { return slices.Contains(addressFields, field) }

// The known formats.
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
	if slices.Contains(Formats(), format) {
		return nil
	}
	return fmt.Errorf("%q is not known: use one of %s, or the format of lines, such as '$remote_addr [$time_local] \"$request\"'",
		format, strings.Join(Formats(), ", "))
}

// parser reads lines of one format.
type parser interface {
	// parse reads line into r, whose fields are empty. The error is the reason why line is unreadable.
	parse(line []byte, r *Record) error
}

// wanted is a field to be filled in from a source.
type wanted struct {
	slot    int                 // of Record.Fields; slotTime: it is the instant
	part    func([]byte) []byte // of the source's text; nil: the whole
	rank    uint8               // of several sources of a slot, the lowest that a line has is taken
	address bool                // it is FieldIP
}

const slotTime = -1

// fill writes value, the text of w's source, into r, unless a better source has filled it.
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

// source is the place of a common field in a format.
type source struct {
	name string
	part func([]byte) []byte // see wanted
}

// layout tells where a format has its fields.
type layout struct {
	times    []string                // fields with the time, the best first
	common   map[string][]source     // the places of common fields, the best first
	has      func(field string) bool // the format has a field
	eachLine bool                    // a line without the best place of a common field may have it elsewhere
}

// want returns the fields that opts asks for, by their sources.
func (l layout) want(opts *Options) (map[string][]wanted, error) {
	times := l.times
	if opts.TimeField != "" {
		times = []string{opts.TimeField}
	}
	all := make(map[string][]wanted)
	for rank, name := range times {
		if l.has(name) {
			all[name] = append(all[name], wanted{slot: slotTime, rank: uint8(rank)})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the format has no field with the time, which is usually called %s: give --time-field", oneOf(times))
	}
	for slot, field := range opts.Fields {
		found := l.find(field)
		if len(found) == 0 {
			return nil, fmt.Errorf("the format has no field %q", field)
		}
		for rank, s := range found {
			all[s.name] = append(all[s.name], wanted{slot, s.part, uint8(rank), IsAddress(field)})
		}
	}
	return all, nil
}

// find returns the places of a field that the format has: the best, or with eachLine all.
func (l layout) find(field string) (found []source) {
	places := l.common[field]
	if places == nil {
		places = []source{{name: field}}
	}
	for _, s := range places {
		if l.has(s.name) {
			found = append(found, s)
		}
	}
	if !l.eachLine {
		found = found[:min(1, len(found))]
	}
	return found
}

// oneOf returns names as an enumeration: a, b or c.
func oneOf(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Unreadable is a line that could not be read.
type Unreadable struct {
	File string `json:"file"`
	Line int    `json:"line"`           // from 1 on
	Why  string `json:"why"`            // in a few words, without parts of the line
	Text string `json:"text,omitempty"` // the line, cut to maxShown bytes: it may hold identifiers

	noAddress bool
}

// maxShown is the part of an Unreadable's line that is kept, in bytes.
const maxShown = 200
