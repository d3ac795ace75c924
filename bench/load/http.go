package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// Caller asks for decisions, for one goroutine at a time.
type Caller interface {
	// Take takes one unit for each key, in one call. After an error the caller is of no use any more.
	Take(keys []uint64) (Outcome, error)
	Close() error
}

// Outcome is what came of requests: decisions, what was none, and the bytes of the answers, headers included.
type Outcome struct{ Allowed, Denied, Failed, Bytes int64 }

// Sent returns how many requests there were.
func (o Outcome) Sent() int64 { return o.Allowed + o.Denied + o.Failed }

func (o *Outcome) add(other Outcome) {
	o.Allowed += other.Allowed
	o.Denied += other.Denied
	o.Failed += other.Failed
	o.Bytes += other.Bytes
}

// Target says how to ask a service by HTTP/1.1.
type Target struct {
	Address string // host:port
	Policy  string
	Prefix  string // of identifiers: what tells this run's from another's on the same store
	Batch   int    // operations a call by POST /v1/batch; 0: one by POST /v1/take
	// Lifetime is how long a connection is of use: longer than a run, so that none hangs for ever.
	Lifetime time.Duration
}

const (
	keyDigits   = 9 // of a key's number in an identifier
	readBuffer  = 64 << 10
	dialTimeout = 5 * time.Second
)

// Open connects to t, for takes of so many units.
func (t Target) Open(cost int64) (Caller, error) {
	conn, err := net.DialTimeout("tcp", t.Address, dialTimeout)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(t.Lifetime)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return t.over(conn, cost), nil
}

func (t Target) over(conn net.Conn, cost int64) *caller {
	c := &caller{conn: conn, reader: bufio.NewReaderSize(conn, readBuffer), batch: t.Batch > 0}
	c.request, c.keys = t.request(cost)
	return c
}

// request returns a whole request, and where in it the digits of its keys are.
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

// caller is a keep-alive connection with a request that is ready but for its keys' digits.
type caller struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
	keys    []int
	batch   bool
	body    []byte // of the last answer
	bytes   int64  // of the last answer
}

// Close closes the connection.
func (c *caller) Close() error { return c.conn.Close() }

// Take implements Caller.
func (c *caller) Take(keys []uint64) (Outcome, error) {
	for i, at := range c.keys {
		number := keys[i]
		for digit := at + keyDigits - 1; digit >= at; digit-- {
			c.request[digit] = byte('0' + number%10)
			number /= 10
		}
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return Outcome{}, err
	}
	status, err := c.answer()
	if err != nil {
		return Outcome{}, err
	}
	outcome := c.outcome(status)
	outcome.Bytes = c.bytes
	return outcome, nil
}

func (c *caller) outcome(status int) Outcome {
	switch {
	case status == 200 && c.batch:
		allowed := int64(bytes.Count(c.body, []byte(`"status":200`)))
		denied := int64(bytes.Count(c.body, []byte(`"status":429`)))
		return Outcome{Allowed: allowed, Denied: denied, Failed: int64(len(c.keys)) - allowed - denied}
	case status == 200:
		return Outcome{Allowed: 1}
	case status == 429:
		return Outcome{Denied: 1}
	}
	return Outcome{Failed: int64(len(c.keys))}
}

var errAnswer = errors.New("the answer is not one of HTTP/1.1 with a Content-Length")

// answer reads an answer, whose body is c's until the next. All peers' bodies are short enough for net/http to give their
// length, or give it themselves.
func (c *caller) answer() (status int, err error) {
	length := -1
	c.bytes = 0
	for first := true; ; first = false {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		c.bytes += int64(len(line))
		switch {
		case first:
			if status, err = statusOf(line); err != nil {
				return 0, err
			}
		case len(line) <= len("\r\n"):
			return status, c.read(length)
		case length < 0:
			length = lengthOf(line)
		}
	}
}

func (c *caller) read(length int) error {
	if length < 0 {
		return errAnswer
	}
	if cap(c.body) < length {
		c.body = make([]byte, length)
	}
	c.body = c.body[:length]
	c.bytes += int64(length)
	_, err := io.ReadFull(c.reader, c.body)
	return err
}

func statusOf(line []byte) (int, error) {
	const version = "HTTP/1.1 "
	if len(line) < len(version)+3 || string(line[:len(version)]) != version {
		return 0, errAnswer
	}
	return strconv.Atoi(string(line[len(version) : len(version)+3]))
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
