package proxy

import (
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// segmentsOf returns the parts of a path between its slashes. Double slashes count as one, and a
// slash at the end is ignored: applications differ in how they read them, and nobody must get
// around a limit by them.
func segmentsOf(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
}

// meaningsOf returns the segments of a path by each meaning that applications give it: of an
// escaped slash, which ends a segment or is a part of it, of a backslash, likewise, of an escaped
// percent sign, which is one or begins an escape, and of text after a semicolon, which is a part
// of the segment or a parameter (RFC 3986, section 3.3) that does not count.
func meaningsOf(u *url.URL) (meanings [][]string) {
	path := strings.ToLower(u.Path)
	meanings = append(meanings, segmentsOf(path))
	escaped := strings.ToLower(u.EscapedPath())
	if strings.Contains(escaped, "%2f") {
		meanings = append(meanings, segmentsOf(decoded(strings.ReplaceAll(escaped, "%2f", "%00"))))
	}
	for _, again := range decodings(u.Path)[1:] {
		meanings = append(meanings, segmentsOf(strings.ToLower(again)))
	}
	if contain(meanings, `\`) {
		meanings = append(meanings, rewritten(meanings, func(s string) string { return strings.ReplaceAll(s, `\`, "/") })...)
	}
	if contain(meanings, ";") {
		meanings = append(meanings, rewritten(meanings, func(s string) string {
			bare, _, _ := strings.Cut(s, ";")
			return bare
		})...)
	}
	return meanings
}

func contain(meanings [][]string, text string) bool {
	return slices.ContainsFunc(meanings, func(segments []string) bool {
		return slices.ContainsFunc(segments, func(s string) bool { return strings.Contains(s, text) })
	})
}

// mostDecodings is how often a path is decoded at most. Some applications decode what their
// server, or a server in front of that, has decoded already.
const mostDecodings = 3

// decodings returns a decoded path, and what it becomes each time that it is decoded again.
func decodings(path string) []string {
	all := []string{path}
	for len(all) < mostDecodings {
		again := decodedAgain(path)
		if again == path {
			break
		}
		all, path = append(all, again), again
	}
	return all
}

// decodedAgain returns path with its escapes decoded. It leaves a percent sign that begins none.
func decodedAgain(path string) string {
	at := strings.IndexByte(path, '%')
	if at < 0 {
		return path
	}
	b := append(make([]byte, 0, len(path)), path[:at]...)
	for i := at; i < len(path); i++ {
		var code [1]byte
		if path[i] == '%' && i+2 < len(path) {
			if _, err := hex.Decode(code[:], []byte(path[i+1:i+3])); err == nil {
				b = append(b, code[0])
				i += 2
				continue
			}
		}
		b = append(b, path[i])
	}
	return string(b)
}

// rewritten returns the meanings of paths after each segment is replaced by another text.
func rewritten(meanings [][]string, as func(segment string) string) (others [][]string) {
	for _, segments := range meanings {
		other := make([]string, len(segments))
		for i, s := range segments {
			other[i] = as(s)
		}
		others = append(others, segmentsOf(strings.Join(other, "/")))
	}
	return others
}

// decoded returns an escaped path as it is meant.
func decoded(escaped string) string {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return escaped // never: net/http has read it
	}
	return strings.ToLower(path)
}

// leadsAway reports whether a path has parts that lead to another one, which applications
// may go by or not: nobody can tell of which route it is. Some take ".. " and "..." for "..".
func leadsAway(segments []string) bool {
	return slices.ContainsFunc(segments, func(s string) bool { return trimTail(s) == "" })
}

// hasControls reports whether a decoded path holds what no page is named by, such as a line
// break: to many patterns of applications "/login" and a line break after it are the same.
func hasControls(path string) bool { return strings.ContainsFunc(path, unicode.IsControl) }

// trimmed cuts blanks and dots off the end of each segment, as some applications do.
func trimmed(segments []string) []string {
	for i, s := range segments {
		segments[i] = trimTail(s)
	}
	return segments
}

func trimTail(segment string) string {
	return strings.TrimRightFunc(segment, func(c rune) bool { return c == '.' || unicode.IsSpace(c) })
}
