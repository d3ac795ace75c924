package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/client/handshake"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// maxAnswerBytes is more than any decision, and any sensible list of policies.
const maxAnswerBytes = 8 << 20

// Client sends requests to one server. Its errors say what to do, and never contain an identifier.
type Client struct {
	server  *url.URL
	timeout time.Duration // of each request
	shown   *credentials
}

// Question is one request to a server.
type Question struct {
	Route          string // below /v1
	Body           any
	Policy         string // in the body; empty: none
	IdempotencyKey string // empty: none
	NoRoute        string // hint for a server without the route; empty: to name another server

	Aftermath Aftermath // nil: it has no effect
}

// Aftermath has sentences about the effect of a question without an answer, by RecordedNo, RecordedYes or
// RecordedUnknown.
type Aftermath map[string]string

// Tell asks q, whose answer has no content.
func (c *Client) Tell(ctx context.Context, q *Question) error {
	a, err := c.Ask(ctx, q)
	if err != nil {
		return err
	}
	if a.Status == http.StatusNoContent {
		return nil
	}
	return c.Refused(ctx, q, a)
}

// policyInForce has the members of a policy that the completion shows.
type policyInForce struct{ Name, Description string }

func (c *Client) policies(ctx context.Context) ([]policyInForce, error) {
	a, _, err := c.exchange(ctx, http.MethodGet, "v1/policies", nil, nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Policies []policyInForce }
	if !a.Into(&list) {
		return nil, a.foreign(&Question{})
	}
	return list.Policies, nil
}

const (
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json"
)

// Ask posts q. Its error explains why there is no answer.
func (c *Client) Ask(ctx context.Context, q *Question) (*Answer, error) {
	body, err := json.Marshal(q.Body)
	if err != nil {
		return nil, errors.New("the request cannot be written as JSON") // never happens: its text is UTF-8
	}
	header := http.Header{"Content-Type": {mediaJSON}}
	if q.IdempotencyKey != "" {
		header.Set("Idempotency-Key", q.IdempotencyKey)
	}
	a, sent, err := c.exchange(ctx, http.MethodPost, "v1/"+q.Route, header, body)
	if err != nil {
		return nil, c.unanswered(err, sent, q)
	}
	return a, nil
}

// unanswered returns the error of a question without an answer. sent reports whether the server may have received it.
func (c *Client) unanswered(err error, sent bool, q *Question) error {
	switch {
	case handshake.FailureOf(err) != handshake.None:
		return c.noTLS(err, q)
	case sent:
		return &failure{fmt.Sprintf("no answer from %s: %v", c.server, err), q.Aftermath[RecordedUnknown]}
	}
	return &failure{
		fmt.Sprintf("%s cannot be reached: %v", c.server, err),
		strings.TrimSpace(q.Aftermath[RecordedNo] + " " + runningThere + serverNamedBy),
	}
}

// noTLS returns the error of a failed TLS handshake. The server has not received q.
func (c *Client) noTLS(err error, q *Question) error {
	cure := ""
	switch handshake.FailureOf(err) {
	case handshake.NoTLS:
		cure = "It speaks no TLS: give --server http://" + c.server.Host + "."
	case handshake.Untrusted:
		cure = "Give the authority that has signed its certificate by --server-ca-file."
	case handshake.OtherName:
		cure = "Give --server a name that its certificate has."
	case handshake.Unshown:
		cure = "It asks for a certificate of one of its authorities: give --client-cert-file and --client-key-file."
	}
	return &failure{fmt.Sprintf("no TLS with %s: %v", c.server, err), strings.TrimSpace(q.Aftermath[RecordedNo] + " " + cure)}
}

// exchange sends one request to a path below the server's URL. Without an answer, sent reports whether the server may
// have received the request.
func (c *Client) exchange(ctx context.Context, method, path string, header http.Header, body []byte) (a *Answer, sent bool, err error) {
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(within, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	path, query, _ := strings.Cut(path, "?")
	to := c.server.JoinPath(path)
	to.RawQuery = query
	req, err := http.NewRequestWithContext(traced, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	for name := range header {
		req.Header[name] = header[name]
	}
	c.shown.show(req.Header)
	req.Header.Set("Accept", mediaJSON+", "+mediaProblem)
	if a, err = c.do(req); err != nil {
		return nil, connected.Load(), c.cause(ctx, err)
	}
	return a, true, nil
}

// do follows no redirect, so that identifiers only go to the server that was named.
func (c *Client) do(req *http.Request) (*Answer, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: c.shown.tls}
	asker := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := asker.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAnswerBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", maxAnswerBytes)
	}
	a := &Answer{Status: resp.StatusCode, Body: body, server: c.server, requestID: resp.Header.Get("X-Request-ID")}
	a.MediaType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type")) // none: that of no answer known here
	a.location, _ = resp.Location()                                          // nil: no redirect
	a.Replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	return a, nil
}

// cause returns err without the URL in front, and with the names of flags.
func (c *Client) cause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("nothing came within --timeout %v", c.timeout)
	}
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}

// Answer is the answer of a server, which need not be ratelimitd.
type Answer struct {
	Status    int
	MediaType string // without parameters
	Body      []byte
	Replayed  bool // it repeats the answer to an earlier request

	server    *url.URL
	requestID string
	location  *url.URL // of a redirect; nil: it is none
}

// Into decodes a into out, and reports whether it is a JSON document with status 200.
func (a *Answer) Into(out any) bool {
	return a.Status == http.StatusOK && a.MediaType == mediaJSON && json.Unmarshal(a.Body, out) == nil
}

// IntoDenial is Into for a problem document with this status.
func (a *Answer) IntoDenial(status int, out any) bool {
	return a.Status == status && a.MediaType == mediaProblem && json.Unmarshal(a.Body, out) == nil
}

// Problem is an error of RFC 9457.
type Problem struct{ Detail, Field, Recorded string }

// Problem returns the problem document in a, nil if it has none.
func (a *Answer) Problem() *Problem {
	p := new(Problem)
	if a.Status < http.StatusBadRequest || a.MediaType != mediaProblem || json.Unmarshal(a.Body, p) != nil || p.Detail == "" {
		return nil
	}
	return p
}

// Refused returns the error of an answer that is not a success.
func (c *Client) Refused(ctx context.Context, q *Question, a *Answer) error {
	p := a.Problem()
	if p == nil {
		return a.foreign(q)
	}
	what := fmt.Sprintf("the server answers %d: %s", a.Status, strings.TrimPrefix(Printable(p.Field)+": "+Printable(p.Detail), ": "))
	switch {
	case a.Status == http.StatusNotFound && p.Field == "policy":
		return &failure{what, c.otherPolicies(ctx, q.Policy)}
	case a.Status == http.StatusUnauthorized:
		return &failure{what, "The token to send is in the file that --token-file names, or in " + command.TokenVariable + "."}
	case a.Status == http.StatusPreconditionFailed: // the detail is about headers
		return &failure{"another version of the policies is the latest now: nothing changed",
			"See what changed by `ratelimitd policies history` and `ratelimitd policies diff FILE`, and apply to that."}
	case a.Status == http.StatusNotFound:
		return &failure{what, cmp.Or(q.NoRoute, serverNamedBy)}
	case a.Status == http.StatusUnprocessableEntity && p.Field == "cost":
		return &failure{what, "Give a smaller --cost, or raise the policy's limit."}
	case a.Status == http.StatusUnprocessableEntity && q.IdempotencyKey != "":
		return &failure{what, "Give another --idempotency-key."}
	case a.Status >= http.StatusInternalServerError:
		return &failure{what, strings.TrimSpace(q.Aftermath[p.Recorded] + a.inTheLog())}
	}
	return &failure{what: what}
}

// otherPolicies says which policies there are, if the server does.
func (c *Client) otherPolicies(ctx context.Context, name string) string {
	inForce, err := c.policies(ctx)
	if err != nil || len(inForce) == 0 {
		return ""
	}
	names := make([]string, len(inForce))
	for i, p := range inForce {
		names[i] = Printable(p.Name)
	}
	return "Policy: " + yamlfile.DidYouMean(name, names)
}

func (a *Answer) inTheLog() string {
	if a.requestID == "" {
		return ""
	}
	return " The server's log has it as request " + Printable(a.requestID) + "."
}

// foreign returns the error of an answer that does not come from ratelimitd.
func (a *Answer) foreign(q *Question) error {
	what := fmt.Sprintf("%s does not answer as ratelimitd does: status %d, content type %q", a.server, a.Status, Printable(a.MediaType))
	cure := serverNamedBy
	switch {
	case a.Status == http.StatusBadRequest && bytes.Contains(a.Body, []byte("HTTP request to an HTTPS server")):
		cure = strings.TrimSpace(q.Aftermath[RecordedNo] + " Give --server https://" + a.server.Host + ".")
		return &failure{fmt.Sprintf("%s speaks TLS alone", a.server), cure}
	case a.location != nil && a.Status < http.StatusBadRequest:
		to := url.URL{Scheme: a.location.Scheme, Host: a.location.Host}
		what += ", a redirect to " + Printable(to.String())
	case a.Status < http.StatusBadRequest || a.Status >= http.StatusInternalServerError:
		cure = strings.TrimSpace(q.Aftermath[RecordedUnknown] + " " + cure)
	}
	return &failure{what, cure}
}

// Put sends body to a route below /v1, and decodes the answer into out. q has the hints for failures.
func (c *Client) Put(ctx context.Context, route string, header http.Header, body []byte, q *Question, out any) error {
	a, sent, err := c.exchange(ctx, http.MethodPut, "v1/"+route, header, body)
	switch {
	case err != nil:
		return c.unanswered(err, sent, q)
	case !a.Into(out):
		return c.Refused(ctx, q, a)
	}
	return nil
}

// Get sends a GET to a route below /v1, decodes the answer into out, and returns its body.
func (c *Client) Get(ctx context.Context, route string, out any) (document []byte, err error) {
	return c.get(ctx, "v1/"+route, &Question{}, out)
}

// GetState is Get for the state of the live page, of one instance, or of all if instance is empty.
func (c *Client) GetState(ctx context.Context, instance string, out any) (document []byte, err error) {
	path := "ui/state"
	if instance != "" {
		path += "?" + url.Values{"instance": {instance}}.Encode()
	}
	return c.get(ctx, path, &Question{NoRoute: "It tells how it is where it serves the live page: start it with --ui."}, out)
}

// Health returns the status of a healthy server, such as ok, and its warnings. With ready, a server is healthy only if
// it can decide. The error says why it is not, or that there is no answer.
func (c *Client) Health(ctx context.Context, ready bool) (status string, warnings []string, err error) {
	path := "healthz"
	if ready {
		path = "readyz"
	}
	var healthy struct {
		Status   string
		Warnings []string
	}
	_, err = c.get(ctx, path, &Question{}, &healthy)
	return healthy.Status, healthy.Warnings, err
}

// get is Get for a path below the server's URL. q has the hints for failures.
func (c *Client) get(ctx context.Context, path string, q *Question, out any) (document []byte, err error) {
	a, _, err := c.exchange(ctx, http.MethodGet, path, nil, nil)
	switch {
	case err != nil:
		return nil, c.unanswered(err, false, q)
	case !a.Into(out):
		return nil, c.Refused(ctx, q, a)
	}
	return a.Body, nil
}
