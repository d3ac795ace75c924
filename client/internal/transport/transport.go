// Package transport sends requests to a ratelimitd over HTTP, and reads replies within bounds.
//
// It knows routes, headers and media types. It knows neither bodies nor calls, nor whether a request is worth another
// try.
package transport

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/client/handshake"
)

// Transport sends requests to one address. It is safe for concurrent use. Make one with New.
type Transport struct {
	routes map[string]*url.URL
	header http.Header
	inject func(context.Context, http.Header)
	send   http.RoundTripper
}

// New returns a Transport to the service at baseURL. Every request has header, which may be nil, and the fields that
// inject adds from its context. The error does not repeat baseURL, which may have a password.
func New(
	baseURL string, header http.Header, inject func(context.Context, http.Header), send http.RoundTripper,
) (*Transport, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, errors.New("the address is not a URL")
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, errors.New("the address must begin with http:// or https:// and name a host")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("the address must have no user, query or fragment; Options.Header is for credentials")
	}
	base.Path = cmp.Or(base.Path, "/")
	t := &Transport{routes: make(map[string]*url.URL), header: header.Clone(), inject: inject, send: send}
	for _, route := range []string{"check", "record", "take", "batch", "refund", "confirm", "reset", "explain"} {
		t.routes[route] = base.JoinPath("v1", route)
	}
	if t.header == nil {
		t.header = make(http.Header)
	}
	t.header["Content-Type"] = []string{mediaJSON}
	t.header["Accept"] = []string{mediaJSON + ", " + mediaProblem}
	return t, nil
}

// Request is a POST of JSON.
type Request struct {
	Route          string // below /v1/: check, record, take, batch, refund, confirm, reset or explain
	IdempotencyKey string // empty: none
	Body           []byte
	Lines          LineReader // reads an answer in lines; nil: none is requested
}

// Reply is the answer to a request. RoundTrip fills it in, and reuses the memory of Body.
type Reply struct {
	Status     int
	RetryAfter time.Duration // whole seconds, up to an hour; 0: not stated
	Replayed   bool          // Idempotent-Replayed: this is the recorded answer to an earlier request
	Lines      bool          // Request.Lines has read the body
	Body       []byte
	mediaType  string
}

// ForeignError is an answer that comes not from ratelimitd, but from a proxy or another service.
type ForeignError struct {
	Status     int
	Why        string
	RetryAfter time.Duration // 0: not stated
}

// Error names the status. It does not repeat the answer.
func (e *ForeignError) Error() string {
	return fmt.Sprintf("the answer is not ratelimitd's: status %d, %s", e.Status, e.Why)
}

// Foreign returns a ForeignError of the reply.
func (r *Reply) Foreign(why string) error { return &ForeignError{r.Status, why, r.RetryAfter} }

const (
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json"
	mediaLines   = "application/x-ndjson"
	// maxRetryAfter is longer than any call waits.
	maxRetryAfter = time.Hour
)

var acceptLines = []string{mediaLines + ", " + mediaJSON + ", " + mediaProblem}

// RoundTrip sends r once and fills in reply. Its error is a *ForeignError, or that of the connection or of ctx. No
// error has any part of a body.
func (t *Transport) RoundTrip(ctx context.Context, r *Request, reply *Reply) error {
	response, err := t.send.RoundTrip(t.request(ctx, r))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	reply.readHead(response)
	reply.Lines = r.Lines != nil && reply.Status == http.StatusOK && reply.mediaType == mediaLines
	if want := reply.wantedType(); !reply.Lines && reply.mediaType != want {
		return reply.Foreign("not " + cmp.Or(want, "empty"))
	}
	if reply.Lines {
		err = reply.readLines(response.Body, r.Lines)
	} else {
		err = reply.readBody(response.Body, response.ContentLength)
	}
	if errors.Is(err, errTooLong) {
		return reply.Foreign(err.Error())
	}
	return err
}

// request returns r as an HTTP request. Redirects are not followed: identifiers go only to the server at the base URL.
func (t *Transport) request(ctx context.Context, r *Request) *http.Request {
	header := t.header.Clone()
	if r.IdempotencyKey != "" {
		header["Idempotency-Key"] = []string{r.IdempotencyKey}
	}
	if r.Lines != nil {
		header["Accept"] = acceptLines
	}
	t.inject(ctx, header)
	getBody := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }
	body, _ := getBody() // never fails
	return (&http.Request{
		Method: http.MethodPost, URL: t.routes[r.Route], Host: t.routes[r.Route].Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: body, GetBody: getBody, ContentLength: int64(len(r.Body)),
	}).WithContext(ctx)
}

// CloseIdleConnections closes idle connections, if the RoundTripper can.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.send.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (r *Reply) readHead(response *http.Response) {
	r.Status, r.RetryAfter = response.StatusCode, 0
	r.Replayed = response.Header.Get("Idempotent-Replayed") == "true"
	if seconds, err := strconv.ParseInt(response.Header.Get("Retry-After"), 10, 32); err == nil && seconds > 0 {
		r.RetryAfter = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	r.mediaType = response.Header.Get("Content-Type")
	if r.mediaType != mediaJSON && r.mediaType != mediaProblem && r.mediaType != mediaLines {
		r.mediaType, _, _ = mime.ParseMediaType(r.mediaType) // empty if it is malformed, and so not known
	}
}

// wantedType returns the media type of ratelimitd's answers with this status.
func (r *Reply) wantedType() string {
	switch {
	case r.Status == http.StatusNoContent:
		return ""
	case r.Status < http.StatusMultipleChoices:
		return mediaJSON
	}
	return mediaProblem
}

// NotSent reports whether err, of a RoundTrip, says that the request was certainly not sent: there was no connection.
func NotSent(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial" || handshake.FailureOf(err) != handshake.None
}
