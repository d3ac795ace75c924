package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

// Bounds of a plain request's head. Others are net/http's, which has its own.
const (
	bufferLen  = 4 << 10 // bytes of a head at most, and of the body that comes with it
	maxFields  = 32      // lines
	lengthBits = 50      // of a Content-Length: far from any overflow
)

// head is the head of a connection's last plain request. Clients send nearly the same one
// each time: a line that is as it was costs a comparison.
type head struct {
	target string // as the request line has it
	url    *url.URL
	host   string
	length int64 // of the body
	fields [maxFields]field
	header http.Header
}

// field is a line of a head.
type field struct {
	line   string // without its end; empty: none was read
	name   string // in canonical form
	value  string
	header [1]string // the value, which a handler may change
}

var lineEnd = []byte("\r\n")

// parse reads the head that b begins with, and returns its length. A head of which b has
// not all is not plain either.
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

// parseTarget reads the request line. A plain target is a path that stands for nothing but itself.
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

// add reads a line of the head into f, and reports whether it is plain.
func (h *head) add(f *field, line []byte) bool {
	if f.line != string(line) && !f.parse(string(line)) {
		return false
	}
	f.header[0] = f.value
	h.header[f.name] = f.header[:]
	return true
}

// parse reads line, and changes nothing unless it is plain.
func (f *field) parse(line string) bool {
	name, value, found := strings.Cut(line, ":")
	if !found || !isOf(name, "!#$%&'*+-.^_`|~") || strings.ContainsFunc(value, isNoText) { // names of RFC 9110, section 5.6.2
		return false
	}
	name, value = textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")
	plain := true
	switch name {
	case "Transfer-Encoding", "Expect", "Pragma": // the last one stands for another header
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

// complete makes a head of the lines that were read, and reports whether it is plain: it has no
// name twice, and a Host, which as net/http has it is not in the header, and a Content-Length.
func (h *head) complete(lines int) bool {
	host, length := h.header["Host"], h.header["Content-Length"]
	if len(h.header) != lines || host == nil || length == nil {
		return false
	}
	n, err := strconv.ParseUint(length[0], 10, lengthBits)
	h.host, h.length = host[0], int64(n) //nolint:gosec // of lengthBits
	delete(h.header, "Host")
	return err == nil
}

// isOf reports whether text is made of letters, digits and others, and not empty.
func isOf(text, others string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		alphanumeric := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !alphanumeric && !strings.ContainsRune(others, r)
	})
}

// isNoText reports whether r is anything but printable ASCII, blank and tab.
func isNoText(r rune) bool { return r != '\t' && (r < ' ' || r > '~') }
