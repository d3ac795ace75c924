package http1

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzHead holds that net/http reads each plain request alike, and as long. The second head comes on the connection of the
// first.
func FuzzHead(f *testing.F) {
	const plain = "POST /v1/take HTTP/1.1\r\nHost: test:80\r\nContent-Length: 2\r\nContent-Type: application/json\r\nA: b\r\n\r\n{}"
	for _, second := range []string{
		plain,
		strings.ToLower(plain),
		strings.ReplaceAll(plain, ": ", ":\t"),
		strings.ReplaceAll(plain, "A: b", "a-b_c: \"d\", e "),
		strings.ReplaceAll(plain, "A: b", "Content-Length: 2"),
		strings.ReplaceAll(plain, "A: b", "Content-Length : 3"),
		strings.ReplaceAll(plain, "A: b", "Content-Length:\v3"),
		strings.ReplaceAll(plain, "A: b", "Transfer-Encoding: chunked"),
		strings.ReplaceAll(plain, "A: b", "Expect: 100-continue"),
		strings.ReplaceAll(plain, "A: b", "Upgrade: h2c"),
		strings.ReplaceAll(plain, "A: b", "Trailer: B"),
		strings.ReplaceAll(plain, "A: b", "Pragma: no-cache"),
		strings.ReplaceAll(plain, "\r\n\r\n", "\r\n\n"),
		strings.ReplaceAll(plain, "A: b\r\n", "A: b\n"),
		strings.ReplaceAll(plain, "A: b", "Transfer-Encoding\x00: chunked"),
		strings.ReplaceAll(plain, "A: b", "A: b\r\n Content-Length: 3"),
		strings.ReplaceAll(plain, "A: b", "A: b\rContent-Length: 3"),
		strings.ReplaceAll(plain, "A: b", "A: b\nContent-Length: 3"),
		strings.ReplaceAll(plain, "A: b", "Host: other"),
		strings.ReplaceAll(plain, "A: b", "Connection: keep-alive, close"),
		strings.ReplaceAll(plain, "/v1/take", "/v1/../take"),
		strings.ReplaceAll(plain, "/v1/take", "/v1/take#fragment"),
		strings.ReplaceAll(plain, "/v1/take", "//v1/take"),
		strings.ReplaceAll(plain, "/v1/take", "*"),
		strings.ReplaceAll(plain, "2\r\n", "0x2\r\n"),
		strings.ReplaceAll(plain, "2\r\n", "-2\r\n"),
		strings.ReplaceAll(plain, "2\r\n", "000000000000002\r\n"),
		strings.ReplaceAll(plain, "test:80", "[::1]:80"),
		strings.ReplaceAll(plain, "test:80", "a:b:c"),
	} {
		f.Add([]byte(plain), []byte(second))
		f.Add([]byte(second), []byte(second))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		h := head{header: make(http.Header)}
		for _, b := range [][]byte{first, second} {
			if len(b) > bufferLen {
				return
			}
			if n, plain := h.parse(b); plain {
				compare(t, &h, b, n)
			}
		}
	})
}

// compare fails unless net/http reads b as h has.
func compare(t *testing.T, h *head, b []byte, n int) {
	t.Helper()
	from := bufio.NewReader(bytes.NewReader(append(slices.Clone(b[:n]), strings.Repeat("x", 1000)...)))
	r, err := http.ReadRequest(from)
	if err != nil {
		t.Fatalf("%q: net/http reads no request: %v", b, err)
	}
	switch {
	case r.Method != http.MethodPost || r.Proto != "HTTP/1.1" || *r.URL != *h.url || r.RequestURI != h.target || r.Host != h.host:
		t.Errorf("%q: net/http reads %s %v %q %s of %q; http1 %v %q of %q", b,
			r.Method, r.URL, r.RequestURI, r.Proto, r.Host, h.url, h.target, h.host)
	case r.ContentLength != h.length || len(r.TransferEncoding) > 0 || r.Trailer != nil || r.Close:
		t.Errorf("%q: net/http reads a length of %d %q %q %v; http1 of %d", b, r.ContentLength, r.TransferEncoding, r.Trailer, r.Close, h.length)
	case !maps.EqualFunc(r.Header, h.header, slices.Equal):
		t.Errorf("%q: net/http reads %q; http1 %q", b, r.Header, h.header)
	}
	if body, _ := io.ReadAll(io.LimitReader(r.Body, 10)); len(body) != int(min(10, h.length)) || strings.Trim(string(body), "x") != "" {
		t.Errorf("%q: net/http reads the body %q", b, body) // it began elsewhere
	}
}
