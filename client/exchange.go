package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Bounds of answers.
const (
	// maxAnswerLen is more than a batch of 1000 calls of 16 demands comes to, in bytes.
	maxAnswerLen = 64 << 20
	// maxKeptLen keeps the rare long answer from staying in memory.
	maxKeptLen = 1 << 20
	firstRead  = 4 << 10
	// batchRetryAfter is the Retry-After of a 503, which results of a batch don't have.
	batchRetryAfter = time.Second
	// maxRetryAfter is longer than any call waits.
	maxRetryAfter = time.Hour
)

// request is what is sent.
type request struct {
	path  string // below /v1/
	key   string // of idempotency; empty: none
	body  []byte
	lines *lines // takes an answer in lines; nil: none is asked for
}

// reply is what comes back.
type reply struct {
	status     int
	retryAfter time.Duration // 0: it does not say
	replayed   bool
	mediaType  string
	inLines    bool // which were taken as they came
	body       []byte
	names      map[string]string
}

var replies = sync.Pool{New: func() any { return &reply{names: make(map[string]string)} }}

func (r *reply) release() {
	if cap(r.body) <= maxKeptLen {
		replies.Put(r)
	}
}

func (r *reply) scanner() *scanner { return &scanner{b: r.body, names: r.names} }

// foreign returns r as the error of an answer that ratelimitd does not give.
func (r *reply) foreign(why string) error { return &foreignError{r.status, why, r.retryAfter} }

// problem returns the problem that r is, or else what is wrong with r.
func (r *reply) problem() error {
	p, ok := readProblem(r.status, r.body)
	if !ok {
		return r.foreign(errNonsense.Error())
	}
	p.RetryAfter = r.retryAfter
	return &p
}

// exchange sends r, and has read make sense of what comes back. Its error is a *Problem, or
// an ErrUnavailable.
func (c *Client) exchange(ctx context.Context, r *request, read func(*reply) error) error {
	return c.breaker.do(func() error {
		back := replies.Get().(*reply)
		defer back.release()
		if err := c.roundTrip(ctx, r, back); err != nil {
			return err
		}
		return read(back)
	})
}

// roundTrip fills in back.
func (c *Client) roundTrip(ctx context.Context, r *request, back *reply) error {
	response, err := c.opts.Transport.RoundTrip(c.request(ctx, r))
	if err != nil {
		return gone(causeOf(ctx, err))
	}
	defer response.Body.Close()
	back.head(response)
	back.inLines = r.lines != nil && back.status == http.StatusOK && back.mediaType == mediaLines
	if want := back.wanted(); !back.inLines && back.mediaType != want {
		return back.foreign("not " + cmp.Or(want, "empty"))
	}
	if back.inLines {
		err = r.lines.readFrom(back, response.Body)
	} else {
		back.body, err = readBody(back.body[:0], response.Body, response.ContentLength)
	}
	switch {
	case errors.As(err, new(*foreignError)):
		return err
	case errors.Is(err, errTooLong):
		return back.foreign(err.Error())
	case err != nil:
		return gone(causeOf(ctx, err))
	}
	return nil
}

// request returns r for the transport. Redirects are not followed: identifiers go to the
// server that was named.
func (c *Client) request(ctx context.Context, r *request) *http.Request {
	header := c.header.Clone()
	if r.key != "" {
		header["Idempotency-Key"] = []string{r.key}
	}
	if r.lines != nil {
		header["Accept"] = acceptLines
	}
	getBody := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.body)), nil }
	body, _ := getBody() // never fails
	return (&http.Request{
		Method: http.MethodPost, URL: c.routes[r.path], Host: c.routes[r.path].Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, GetBody: getBody, ContentLength: int64(len(r.body)),
	}).WithContext(ctx)
}

// causeOf returns why a request ended: what cancelled it, or err. What a caller says of a
// context of theirs is not said of the service. No error of the transport holds anything of a
// body.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	switch cause := context.Cause(ctx).(type) { //nolint:errorlint // a caller's own may wrap the client's
	case *leftError:
		return cause.why
	case *timeoutError:
		return cause
	}
	return ctx.Err()
}

// leftError is that nobody waits for a request any more, and why the last of them went.
type leftError struct{ why error }

// Error says so.
func (e *leftError) Error() string { return "nobody waits any more: " + e.why.Error() }

func (r *reply) head(response *http.Response) {
	r.status, r.retryAfter = response.StatusCode, 0
	r.replayed = response.Header.Get("Idempotent-Replayed") == "true"
	if seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 32); err == nil && seconds > 0 {
		r.retryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	r.mediaType = response.Header.Get("Content-Type")
	if r.mediaType != mediaJSON && r.mediaType != mediaProblem && r.mediaType != mediaLines {
		r.mediaType, _, _ = mime.ParseMediaType(r.mediaType) // empty: none that is known here
	}
}

const (
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json"
	mediaLines   = "application/x-ndjson"
)

var acceptLines = []string{mediaLines + ", " + mediaJSON + ", " + mediaProblem}

// wanted returns the media type that ratelimitd gives with this status.
func (r *reply) wanted() string {
	switch {
	case r.status == http.StatusNoContent:
		return ""
	case r.status < http.StatusMultipleChoices:
		return mediaJSON
	}
	return mediaProblem
}

var errTooLong = errors.New("longer than any of ratelimitd's")

// readBody appends body, which says that it is length bytes long, or -1, to b.
func readBody(b []byte, body io.Reader, length int64) ([]byte, error) {
	if length > maxAnswerLen {
		return b, errTooLong
	}
	if want := int(max(length+1, firstRead)); cap(b) < want {
		b = make([]byte, 0, want)
	}
	for {
		if len(b) > maxAnswerLen {
			return b, errTooLong
		}
		if len(b) == cap(b) {
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return b, nil
		}
		if err != nil {
			return b, err
		}
	}
}
