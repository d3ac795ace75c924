package http1_test

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"strings"
)

// draft draws requests from a grammar, whose alternatives are chosen by the bytes of a fuzzer. After the last of these,
// each request is plain.
type draft struct {
	choices []byte
	out     bytes.Buffer
}

// mostRequests is the maximum of requests of one connection.
const mostRequests = 5

// drawStream returns the bytes of a client by choices: requests one after the other, some of them with an oddity, sometimes
// cut short or with a changed byte.
func drawStream(choices []byte) []byte {
	d := &draft{choices: choices}
	for range 1 + d.below(mostRequests) {
		d.drawRequest()
		d.odd(20, "", "\r\n", "\n", "\r\n\r\n", "\r\n\r\n\r\n", "\r", " ", "x", "\x00")
	}
	sent := d.out.Bytes()
	at := d.below(len(sent))
	if d.rarely(10) {
		return sent[:at]
	}
	if d.rarely(10) {
		sent[at] = d.next()
	}
	return sent
}

// next returns the next choice.
func (d *draft) next() byte {
	if len(d.choices) == 0 {
		return 0
	}
	c := d.choices[0]
	d.choices = d.choices[1:]
	return c
}

// below returns a number from 0 to n - 1.
func (d *draft) below(n int) int {
	c := int(d.next())
	if n > 256 {
		c = c<<8 | int(d.next())
	}
	return c % max(n, 1)
}

// rarely returns true in so many percent of all cases.
func (d *draft) rarely(percent int) bool { return int(d.next())*100 >= (100-percent)*256 }

// odd writes the plain text or, in so many percent of all cases, one of the others.
func (d *draft) odd(percent int, plain string, others ...string) {
	if d.rarely(percent) {
		plain = others[d.below(len(others))]
	}
	d.out.WriteString(plain)
}

const (
	seldom    = 1 // percent
	sometimes = 4 // percent
)

// drawRequest writes a request: its line, its fields in any order, and its body.
func (d *draft) drawRequest() {
	d.odd(sometimes, "POST", "GET", "HEAD", "PUT", "OPTIONS", "CONNECT", "DELETE",
		"post", "Post", "POSTS", "P\x00ST", "PO ST", "", "PRI", " POST")
	d.odd(seldom, " ", "  ", "\t", "", "\r")
	paths := []string{"/v1/take", "/", "/a/b.c-d_e", "/wait", "/deaf", "/part"}
	d.odd(2*sometimes, paths[d.below(len(paths))], "//a", "/a?b=c", "/a?", "/%61", "/%00", "/%2f", "/%zz", "/a#b", "*",
		"http://h/a", "http://h", "http://u:p@h:80/x", "HTTP://h/a", "h:80", "h", "/\x01", "/\xc3\xa4", "/a b", "",
		"/../x", "/./x", "/a;b", "/a:b",
		"/"+strings.Repeat("l", 5000))
	d.odd(seldom, " ", "  ", "\t", "")
	d.odd(sometimes, "HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/1.1 ",
		"HTTP/01.1", "HTTP/1.10", "HTTP/1,1", "")
	d.endLine()
	body, chunked := d.drawBody()
	length := strconv.Itoa(len(body))
	fields := []func(){d.drawHost, func() { d.drawLength(length, chunked) }, func() { d.drawEncoding(chunked) }}
	for range d.below(4) {
		fields = append(fields, d.drawField)
	}
	first := d.below(len(fields))
	for i := range fields {
		fields[(first+i)%len(fields)]()
	}
	d.endLine()
	d.out.WriteString(body)
}

func (d *draft) endLine() { d.odd(seldom, "\r\n", "\n", "\r", "\r\r\n", "\n\r", " \r\n", "\r\n\t", "") }

// field writes a line of the head.
func (d *draft) field(name, value string) {
	if d.rarely(seldom) {
		change := []func(string) string{strings.ToLower, strings.ToUpper, d.spoil}
		name = change[d.below(len(change))](name)
	}
	d.out.WriteString(name)
	d.odd(seldom, ":", " :", "\t:", "", "::", "\x00:", "\r\n :")
	d.odd(sometimes, " ", "", "  ", "\t", "\r\n ", "\n\t", "\v", "\xa0", "\x00")
	if d.rarely(seldom) {
		value = d.spoil(value)
	}
	d.out.WriteString(value)
	d.odd(seldom, "", " ", "\t", "\v", "\x00", "\x7f", "\r", ",")
	d.endLine()
}

// spoil returns text with an unusual character in it.
func (d *draft) spoil(text string) string {
	spoils := []string{"\x00", "\x01", "\r", "\n", "\t", " ", "\x7f", "\x80", "\xc3\xa4", "\"",
		"(", ",", ";", "_", "=", "\r\n ", "\r\nX: y\r\n"}
	at := d.below(len(text) + 1)
	return text[:at] + spoils[d.below(len(spoils))] + text[at:]
}

func (d *draft) drawHost() {
	hosts := 1
	if d.rarely(seldom) {
		hosts = 2 * d.below(2)
	}
	for range hosts {
		host := "test"
		if d.rarely(sometimes) {
			others := []string{"a:80", "[::1]:80", "[::1%25lo]", "a.b-c_d", "", "a b", "a,b", "a/b", "a@b", "a:b:c", "\xc3\xa4", "a%41", "*"}
			host = others[d.below(len(others))]
		}
		d.field("Host", host)
	}
}

// drawLength writes the Content-Length of a body of so many bytes.
func (d *draft) drawLength(length string, chunked bool) {
	others := []string{
		"-1", "-0", "+" + length, length + "," + length, length + ", " + length, "0x" + length, length + ".0", length + "e0", "00" + length,
		"000000000000000000000" + length, "99999999999999999999", "9223372036854775807", "9223372036854775808", "1000000000000000", length + "\v",
		length + ";", "1_0", "", " ", length + " " + length, "\xd9\xa1", length + "0", "1",
	}
	switch {
	case chunked != d.rarely(seldom):
	case d.rarely(sometimes):
		d.field("Content-Length", others[d.below(len(others))])
	default:
		d.field("Content-Length", length)
	}
	switch {
	case !d.rarely(seldom):
	case d.rarely(50):
		d.field("Content-Length", length)
	default:
		d.field("Content-Length", others[d.below(len(others))])
	}
}

func (d *draft) drawEncoding(chunked bool) {
	if chunked == d.rarely(2) {
		return
	}
	others := []string{"Chunked", "gzip, chunked", "chunked, gzip", "chunked, chunked", "identity",
		"xchunked", "chunked\v", "\"chunked\"", "chunked;a=b", "", "gzip"}
	encoding := "chunked"
	if d.rarely(sometimes) {
		encoding = others[d.below(len(others))]
	}
	d.field("Transfer-Encoding", encoding)
	if d.rarely(seldom) {
		d.field("Transfer-Encoding", encoding)
	}
}

// drawField writes a line that does not affect the length of the request.
func (d *draft) drawField() {
	lines := [][2]string{
		{"User-Agent", "a/1.0"},
		{"Content-Type", "application/json"},
		{"Accept", "*/*"},
		{"X-Forwarded-For", "192.0.2.1, 192.0.2.2"},
		{"Authorization", "Bearer a"},
		{"Connection", "keep-alive"},
		{"X-Real-IP", "192.0.2.1"},
		{"X-Request-Id", "a-b"},
		{"Accept-Encoding", "gzip"},
		{"Via", "1.1 a"},
		{"Forwarded", "for=192.0.2.1;proto=http"},
		{"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"Idempotency-Key", "\"a\""},
		{"Origin", "http://a"},
	}
	others := [][2]string{
		{"Connection", "close"},
		{"Connection", "Close"},
		{"Connection", "upgrade"},
		{"Connection", "keep-alive, close"},
		{"Connection", "Content-Length"},
		{"Connection", ""},
		{"Keep-Alive", "timeout=5"},
		{"Proxy-Connection", "close"},
		{"Expect", "100-continue"},
		{"Expect", "100-Continue"},
		{"Expect", "200-ok"},
		{"Upgrade", "h2c"},
		{"HTTP2-Settings", ""},
		{"Trailer", "A"},
		{"Trailer", "Content-Length"},
		{"TE", "trailers"},
		{"Pragma", "no-cache"},
		{"Cookie", "a=b; c=d"},
		{"Date", "yesterday"},
		{"Content-Encoding", "gzip"},
		{"Content_Length", "7"},
		{"Transfer_Encoding", "chunked"},
		{"X-Content-Length", "7"},
		{"", "no name"},
		{"A", ""},
		{"A", "b\tc"},
		{"A", "\xc3\xa4"},
		{"A", strings.Repeat("long ", 300)},
		{"A", strings.Repeat("b", 6000)},
		{"A\"B", "c"},
		{"A B", "c"},
	}
	line := lines[d.below(len(lines))]
	if d.rarely(sometimes) {
		line = others[d.below(len(others))]
	}
	times := 1
	if d.rarely(2) {
		times = 40
	}
	for range times {
		d.field(line[0], line[1])
	}
}

// drawBody returns a body, and whether it is in chunks.
func (d *draft) drawBody() (body string, chunked bool) {
	lengths := []int{2, 0, 1, 3, 4, 5, 6, 100, 4000, 5000}
	body = strings.Repeat("x", lengths[d.below(len(lengths))])
	if body != "" && d.rarely(seldom) {
		body = (post("") + strings.Repeat("x", len(body)))[:len(body)] // a server may read it as a request
	}
	if !d.rarely(2 * sometimes) {
		return body, false
	}
	inner := draft{choices: d.choices}
	for left := body; left != ""; {
		n := min(1+inner.below(len(left)), len(left))
		inner.chunk(strconv.FormatInt(int64(n), 16), left[:n])
		left = left[n:]
	}
	inner.chunk("0", "")
	d.choices = inner.choices
	return inner.out.String(), true
}

// chunk writes a chunk, or the last one with its trailers.
func (d *draft) chunk(length, data string) {
	d.odd(seldom, length, "0"+length, "+"+length, "-"+length, "0x"+length, length+" ", " "+length, length+"0", "",
		"FFFFFFFFFFFFFFFF", "10000000000000000", "x")
	d.odd(sometimes, "", ";", ";a", ";a=b", " ;a=\"b\"", ";a=\"\r\n\"", ";\x00", ";"+strings.Repeat("e", 5000))
	d.endLine()
	d.out.WriteString(data)
	if data == "" {
		d.odd(sometimes, "", "A: b\r\n", "Content-Length: 7\r\n", "A\r\n", "A: "+strings.Repeat("b", 6000)+"\r\n")
	}
	d.endLine()
}

// someChoices returns n choices, which are always the same for a seed.
func someChoices(seed uint64, n int) []byte {
	from := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same each time, on purpose
	choices := make([]byte, n)
	for i := range choices {
		choices[i] = byte(from.Uint32())
	}
	return choices
}
