package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Caller makes calls, for one goroutine at a time.
type Caller interface {
	// Take takes one unit for each key, in one call. After an error the caller can't be used any more.
	Take(keys []uint64) (Outcome, error)
	Close() error
}

// RoundRobin returns a function that opens callers with each of these in turn.
func RoundRobin(open []func(cost int64) (Caller, error)) func(cost int64) (Caller, error) {
	var next atomic.Int64
	return func(cost int64) (Caller, error) { return open[(next.Add(1)-1)%int64(len(open))](cost) }
}

// Outcome counts the answers to requests: decisions, failures, and bytes, headers included.
type Outcome struct{ Allowed, Denied, Failed, Bytes int64 }

// Sent returns how many requests there were.
func (o Outcome) Sent() int64 { return o.Allowed + o.Denied + o.Failed }

func (o *Outcome) add(other Outcome) {
	o.Allowed += other.Allowed
	o.Denied += other.Denied
	o.Failed += other.Failed
	o.Bytes += other.Bytes
}

// Target is a service to call over HTTP/1.1.
type Target struct {
	Address string // host:port
	Policy  string
	Prefix  string // of identifiers, which distinguishes those of this run from others on the same store
	Batch   int    // operations in a POST /v1/batch; 0: one in a POST /v1/take
	// Lifetime bounds the use of a connection, so that no call hangs forever. It is longer than a run.
	Lifetime time.Duration
}

const (
	keyDigits   = 9 // of a key's number in an identifier
	readBuffer  = 64 << 10
	dialTimeout = 5 * time.Second
)

// Open connects to t, for takes of this many units.
func (t Target) Open(cost int64) (Caller, error) {
	conn, err := net.DialTimeout("tcp", t.Address, dialTimeout)
	if err != nil {
		return nil, err
	}
	c := &caller{conn: conn, batch: t.Batch > 0, expires: time.Now().Add(t.Lifetime), in: make([]byte, 0, readBuffer)}
	if err := conn.SetDeadline(c.expires); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c.request, c.keys = t.request(cost)
	return c, nil
}

// request returns a whole request, and the positions of the digits of its keys.
func (t Target) request(cost int64) (request []byte, keys []int) {
	const blank = "\x00"
	demand := fmt.Sprintf(`"policy":%q,"identifier":"%s%s","cost":%d}`, t.Policy, t.Prefix, strings.Repeat(blank, keyDigits), cost)
	path, body := "/v1/take", "{"+demand
	if t.Batch > 0 {
		operation := `{"op":"take",` + demand
		path, body = "/v1/batch", `{"operations":[`+strings.Repeat(operation+",", t.Batch-1)+operation+`]}`
	}
	request = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, t.Address, len(body), body)
	for at := range request {
		if request[at] == blank[0] && request[at-1] != blank[0] {
			keys = append(keys, at)
		}
	}
	return request, keys
}

// caller is a keep-alive connection with a request that is complete except for its keys' digits.
type caller struct {
	conn    net.Conn
	expires time.Time
	request []byte
	keys    []int
	batch   bool
	in      []byte // bytes that were read and belong to no answer yet
}

// Close closes the connection.
func (c *caller) Close() error { return c.conn.Close() }

// Take implements Caller.
func (c *caller) Take(keys []uint64) (Outcome, error) {
	if _, err := c.conn.Write(c.asking(keys)); err != nil {
		return Outcome{}, err
	}
	for {
		if outcome, done, err := c.answer(); done || err != nil {
			return outcome, err
		}
		n, err := c.conn.Read(c.free())
		if n == 0 {
			return Outcome{}, errors.Join(err, io.ErrUnexpectedEOF)
		}
		c.in = c.in[:len(c.in)+n]
	}
}

// asking returns the request that takes for keys. It is valid until the next call.
func (c *caller) asking(keys []uint64) []byte {
	for i, at := range c.keys {
		number := keys[i]
		for digit := at + keyDigits - 1; digit >= at; digit-- {
			c.request[digit] = byte('0' + number%10)
			number /= 10
		}
	}
	return c.request
}

// free returns the buffer for more of an answer.
func (c *caller) free() []byte {
	if len(c.in) == cap(c.in) {
		c.in = slices.Grow(c.in, readBuffer)
	}
	return c.in[len(c.in):cap(c.in)]
}

// answer returns the outcome of a request once the whole answer was read.
func (c *caller) answer() (o Outcome, done bool, err error) {
	const blankLine = "\r\n\r\n"
	end := bytes.Index(c.in, []byte(blankLine))
	if end < 0 {
		return o, false, nil
	}
	status, length, err := headOf(c.in[:end])
	if err != nil {
		return o, false, err
	}
	begin := end + len(blankLine)
	if len(c.in) < begin+length {
		return o, false, nil
	}
	o = c.outcome(status, c.in[begin:begin+length])
	o.Bytes = int64(begin + length)
	c.in = c.in[:copy(c.in, c.in[begin+length:])]
	return o, true, nil
}

func (c *caller) outcome(status int, body []byte) Outcome {
	switch {
	case status == 200 && c.batch:
		allowed := int64(bytes.Count(body, []byte(`"status":200`)))
		denied := int64(bytes.Count(body, []byte(`"status":429`)))
		return Outcome{Allowed: allowed, Denied: denied, Failed: int64(len(c.keys)) - allowed - denied}
	case status == 200:
		return Outcome{Allowed: 1}
	case status == 429:
		return Outcome{Denied: 1}
	}
	return Outcome{Failed: int64(len(c.keys))}
}

var errAnswer = errors.New("the answer is not HTTP/1.1 with a Content-Length")

// headOf parses an answer's head. All peers' bodies are so short that net/http sends their length, or the peers send
// it themselves.
func headOf(head []byte) (status, length int, err error) {
	const version = "HTTP/1.1 "
	first, headers, _ := bytes.Cut(head, []byte("\r\n"))
	if len(first) < len(version)+3 || string(first[:len(version)]) != version {
		return 0, 0, errAnswer
	}
	if status, err = strconv.Atoi(string(first[len(version) : len(version)+3])); err != nil {
		return 0, 0, err
	}
	for len(headers) > 0 {
		var line []byte
		line, headers, _ = bytes.Cut(headers, []byte("\r\n"))
		if length := lengthOf(line); length >= 0 {
			return status, length, nil
		}
	}
	return 0, 0, errAnswer
}

// lengthOf returns the value of a Content-Length, or -1 if the line is another header.
func lengthOf(line []byte) int {
	const name = "content-length:"
	if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return -1
	}
	length, err := strconv.Atoi(string(bytes.TrimSpace(line[len(name):])))
	if err != nil {
		return -1
	}
	return length
}
