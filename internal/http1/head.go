package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// Bounds of a plain request's head. Others are net/http's, which has its own.
const (
	bufferLen = 4 << 10 // bytes of a head at most, and of what comes with it
	maxFields = 32      // lines
)

// head is the head of a connection's last plain request. Clients send nearly the same one
// each time: a line that is as it was costs a comparison.
type head struct {
	target string // as the request line has it
	url    *url.URL
	host   string
	length int64 // of the body
	fields [maxFields]field
	count  int
	values [maxFields]string // of header
	header http.Header
}

// field is a line of a head.
type field struct {
	line  string // without its end; empty: none was read
	name  string // in canonical form
	value string
}

const (
	methodAndSpace = "POST "
	restOfLine     = " HTTP/1.1\r"
)

// parse reads the head that b begins with, and returns its length. A head of which b has
// not all is not plain either.
func (h *head) parse(b []byte) (n int, plain bool) {
	line, rest, whole := bytes.Cut(b, []byte("\n"))
	if !whole || !h.parseTarget(line) {
		return 0, false
	}
	for h.count, h.host, h.length = 0, "", noLength; ; {
		line, rest, whole = bytes.Cut(rest, []byte("\n"))
		switch {
		case whole && len(line) == 1 && line[0] == '\r':
			h.setHeader()
			return len(b) - len(rest), h.host != "" && h.length != noLength
		case !whole || h.count == maxFields || !h.parseField(line):
			return 0, false
		}
	}
}

// noLength is the length of a body that none was given for.
const noLength = -1

// parseTarget reads the request line.
func (h *head) parseTarget(line []byte) bool {
	if len(line) < len(methodAndSpace)+len(restOfLine) {
		return false
	}
	target, end := line[len(methodAndSpace):len(line)-len(restOfLine)], line[len(line)-len(restOfLine):]
	switch {
	case string(line[:len(methodAndSpace)]) != methodAndSpace || string(end) != restOfLine:
		return false
	case string(target) == h.target && h.url != nil:
		return true
	case !isPlainPath(target):
		return false
	}
	h.target = string(target)
	h.url = &url.URL{Path: h.target}
	return true
}

// isPlainPath reports whether path stands for nothing but itself.
func isPlainPath(path []byte) bool {
	if len(path) == 0 || path[0] != '/' {
		return false
	}
	for _, c := range path {
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alphanumeric && c != '/' && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// parseField reads a line of the head, and reports whether it is plain.
func (h *head) parseField(line []byte) bool {
	f := &h.fields[h.count]
	if f.line == "" || f.line != string(line) {
		if !f.parse(line) {
			f.line = ""
			return false
		}
	}
	h.count++
	switch f.name {
	case "Host":
		if h.host != "" || f.value == "" {
			return false
		}
		h.host = f.value
	case "Content-Length":
		n, ok := parseLength(f.value)
		if h.length != noLength || !ok {
			return false
		}
		h.length = n
	}
	return true
}

// parse reads line, which its carriage return ends.
func (f *field) parse(line []byte) bool {
	last := len(line) - 1
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || line[last] != '\r' || !isToken(line[:colon]) || !isText(line[colon+1:last]) {
		return false
	}
	f.line = string(line)
	f.name = textproto.CanonicalMIMEHeaderKey(f.line[:colon])
	f.value = strings.Trim(f.line[colon+1:last], " \t")
	switch f.name {
	case "Transfer-Encoding", "Expect", "Pragma": // the last one stands for another header
		return false
	case "Connection":
		return strings.EqualFold(f.value, "keep-alive")
	case "Host":
		return isPlainHost(f.value)
	}
	return true
}

// isToken reports whether b is a name of RFC 9110, section 5.6.2.
func isToken(b []byte) bool {
	for _, c := range b {
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alphanumeric && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}

// isText reports whether b is printable ASCII, blanks and tabs.
func isText(b []byte) bool {
	for _, c := range b {
		if c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}

// isPlainHost reports whether host is a name or an address, perhaps with a port.
func isPlainHost(host string) bool {
	for _, c := range []byte(host) {
		alphanumeric := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !alphanumeric && strings.IndexByte(".-_:[]", c) < 0 {
			return false
		}
	}
	return host != ""
}

// maxLengthDigits keeps lengths far from any overflow.
const maxLengthDigits = 15

func parseLength(text string) (n int64, ok bool) {
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, text != "" && len(text) <= maxLengthDigits
}

// setHeader makes the header of the fields. As net/http has it, Host is none of it.
func (h *head) setHeader() {
	if h.header == nil {
		h.header = make(http.Header, h.count)
	}
	clear(h.header)
	for i := range h.count {
		f := &h.fields[i]
		if f.name == "Host" {
			continue
		}
		h.values[i] = f.value
		if earlier, ok := h.header[f.name]; ok {
			h.header[f.name] = append(earlier, f.value)
		} else {
			h.header[f.name] = h.values[i : i+1 : i+1]
		}
	}
}
