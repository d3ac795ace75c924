package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of the head of a plain request. net/http answers others, by its own bounds.
const (
	bufferLen  = 4 << 10 // maximum of bytes of a head, with the body that arrives with it
	maxFields  = 32      // lines
	lengthBits = 50      // of a Content-Length, far from an overflow
)

// head is the head of a connection's last plain request. Clients send nearly the same one each time: for an equal line, a
// comparison is enough.
type head struct {
	target string // in the request line
	url    *url.URL
	host   string
	length int64 // of the body
	fields [maxFields]field
	header http.Header
}

// field is a line of a head.
type field struct {
	line   string // without its end; empty: there was none
	name   string // in canonical form
	value  string
	header [1]string // the value, which a handler may change
}

var lineEnd = []byte("\r\n")

// parse reads the head at the start of b, and returns its length. A head that is not complete is not plain.
func (h *head) parse(b []byte) (n int, plain bool) {
	line, rest, whole := bytes.Cut(b, lineEnd)
	if !whole || !h.parseTarget(line) {
		return 0, false
	}
	clear(h.header)
	for count := 0; ; count++ {
		line, rest, whole = bytes.Cut(rest, lineEnd)
		switch {
		case whole && len(line) == 0:
			return len(b) - len(rest), h.complete(count)
		case !whole || count == maxFields || !h.add(&h.fields[count], line):
			return 0, false
		}
	}
}

// parseTarget reads the request line. A plain target is a path with one meaning.
func (h *head) parseTarget(line []byte) bool {
	rest, isPost := bytes.CutPrefix(line, []byte("POST "))
	target, ends := bytes.CutSuffix(rest, []byte(" HTTP/1.1"))
	switch {
	case !isPost || !ends || len(target) == 0 || target[0] != '/':
		return false
	case string(target) == h.target:
		return true
	case !isOf(string(target), "/-_."):
		return false
	}
	h.target = string(target)
	h.url = &url.URL{Path: h.target}
	return true
}

// add reads a line of the head into f, and reports whether the line is plain.
func (h *head) add(f *field, line []byte) bool {
	if f.line != string(line) && !f.parse(string(line)) {
		return false
	}
	f.header[0] = f.value
	h.header[f.name] = f.header[:]
	return true
}

// parse reads line, and changes f only if line is plain.
func (f *field) parse(line string) bool {
	name, value, found := strings.Cut(line, ":")
	if !found || !isOf(name, "!#$%&'*+-.^_`|~") || strings.ContainsFunc(value, isNoText) { // names of RFC 9110, section 5.6.2
		return false
	}
	name, value = textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")
	plain := true
	switch name {
	case "Transfer-Encoding", "Expect", "Pragma": // net/http sets another header for the last one
		plain = false
	case "Connection":
		plain = strings.EqualFold(value, "keep-alive")
	case "Host":
		plain = isOf(value, ".-_:[]")
	}
	if plain {
		f.line, f.name, f.value = line, name, value
	}
	return plain
}

// complete completes a head of this many lines, and reports whether it is plain: it has no name twice, a Host, which it
// moves out of the header as net/http does, and a Content-Length.
func (h *head) complete(lines int) bool {
	host, length := h.header["Host"], h.header["Content-Length"]
	if len(h.header) != lines || host == nil || length == nil {
		return false
	}
	n, err := strconv.ParseUint(length[0], 10, lengthBits)
	h.host, h.length = host[0], int64(n) //nolint:gosec // it has lengthBits
	delete(h.header, "Host")
	return err == nil
}

// isOf reports whether text consists of letters, digits and others, and is not empty.
func isOf(text, others string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		alphanumeric := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !alphanumeric && !strings.ContainsRune(others, r)
	})
}

// isNoText reports whether r is anything but printable ASCII, blank and tab.
func isNoText(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }
