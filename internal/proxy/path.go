package proxy

import (
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// segmentsOf returns the parts of a path between its slashes. Double slashes count as one, and a slash at the end is
// ignored: applications read them differently, and they must not be a way around a limit.
func segmentsOf(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" })
}

// meaningsOf returns the segments of a path for each way in which applications may read it. An escaped slash or a
// backslash may end a segment or be a part of it, an escaped percent sign may begin an escape, and text after a
// semicolon may be a part of the segment or a parameter (RFC 3986, section 3.3).
func meaningsOf(u *url.URL) (meanings [][]string) {
	path := strings.ToLower(u.Path)
	meanings = append(meanings, segmentsOf(path))
	escaped := strings.ToLower(u.EscapedPath())
	if strings.Contains(escaped, "%2f") {
		whole, _ := url.PathUnescape(strings.ReplaceAll(escaped, "%2f", "%00")) // net/http has checked the escapes
		meanings = append(meanings, segmentsOf(strings.ToLower(whole)))
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

// mostDecodings is how often a path is decoded at most. Some applications decode a path that a server in front has
// decoded already.
const mostDecodings = 3

// decodings returns path, which is decoded once, and the results of decoding it again.
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

// decodedAgain returns path with its escapes decoded. It keeps percent signs that begin no escape.
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

// rewritten returns the meanings after each segment is replaced by as.
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

// leadsAway reports whether a path has segments such as "..", which applications may or may not follow, so that its
// route is ambiguous. Some read ".. " and "..." as "..".
func leadsAway(segments []string) bool {
	return slices.ContainsFunc(segments, func(s string) bool { return trimTail(s) == "" })
}

// hasControls reports whether a decoded path contains control characters. To many patterns of applications, "/login"
// and "/login" with a line break are the same.
func hasControls(path string) bool { return strings.ContainsFunc(path, unicode.IsControl) }

// trimmed removes blanks and dots from the end of each segment, as some applications do.
func trimmed(segments []string) []string {
	for i, s := range segments {
		segments[i] = trimTail(s)
	}
	return segments
}

func trimTail(segment string) string {
	return strings.TrimRightFunc(segment, func(c rune) bool { return c == '.' || unicode.IsSpace(c) })
}
