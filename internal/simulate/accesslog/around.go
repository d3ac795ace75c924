package accesslog

import (
	"bytes"
	"encoding/json"
	"regexp"
)

// Prefixes and envelopes that log collectors add to lines.

// linePrefixes match the prefixes of lines.
var linePrefixes = []*regexp.Regexp{
	regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ (?:stdout|stderr) [FP] `),                                           // CRI: files of Kubernetes
	regexp.MustCompile(`^\[pod/[^\]]+\] `),                                                                       // kubectl logs --prefix
	regexp.MustCompile(`^[\w.-]+ +\| `),                                                                          // docker compose logs
	regexp.MustCompile(`^(?:<\d+>)?1 \S+ \S+ \S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) ?(?:\xef\xbb\xbf)?`),              // RFC 5424
	regexp.MustCompile(`^(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?:[^\s\[]+ )?[^\s:\[]+(?:\[\d+\])?: ?`), // RFC 3164, journalctl
	regexp.MustCompile(`^(?:<\d+>)?\d{4}-\d\d-\d\dT\S+ [^\s\[]+ [^\s:\[]+(?:\[\d+\])?: ?`),                       // rsyslog
	regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* `),                                                    // docker logs --timestamps
}

// maxPrefixes is the maximum of prefixes of a line, such as kubectl's and a time.
const maxPrefixes = 3

// cutPrefixes returns line without up to n prefixes, and the number of removed ones.
func cutPrefixes(line []byte, n int) (rest []byte, cut int) {
	for ; cut < min(n, maxPrefixes); cut++ {
		found := -1
		for _, prefix := range linePrefixes {
			if at := prefix.FindIndex(line); at != nil {
				found = at[1]
				break
			}
		}
		if found < 0 {
			break
		}
		line = line[found:]
	}
	return line, cut
}

// prefixed reads lines with a number of prefixes.
type prefixed struct {
	count int
	inner parser
}

func (p *prefixed) parse(line []byte, r *Record) error {
	line, _ = cutPrefixes(line, p.count)
	return p.inner.parse(line, r)
}

// envelope is an object of JSON that has a line as a member.
type envelope struct{ line, beside string }

var envelopes = []envelope{
	{"log", "stream"},                   // Docker's json-file, and Fluent Bit
	{"MESSAGE", "__REALTIME_TIMESTAMP"}, // journalctl --output=json
}

// enclosed reads lines that are members of objects.
type enclosed struct {
	outer  *objects
	record *Record
	inner  parser
}

func (e *enclosed) parse(line []byte, r *Record) error {
	e.record.reset()
	if err := e.outer.parse(line, e.record); err != nil {
		return err
	}
	return e.inner.parse(bytes.TrimRight(e.record.Fields[0], "\r\n"), r)
}

func isObject(line []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) }

// detectObject returns a parser for the JSON object line, which may be an envelope of a line.
func detectObject(line []byte, format string, opts *Options) (parser, error) {
	for _, e := range envelopes {
		var members map[string]json.RawMessage
		var text string
		if json.Unmarshal(line, &members) != nil || members[e.beside] == nil || json.Unmarshal(members[e.line], &text) != nil {
			continue
		}
		inner, err := detect(bytes.TrimRight([]byte(text), "\r\n"), format, opts)
		if err != nil {
			return nil, err
		}
		outer := objectsOf(map[string][]wanted{e.line: {{}}}, nil)
		return &enclosed{outer, newRecord(1), inner}, nil
	}
	return newObjects(opts)
}
