package main

import (
	"bytes"
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

	"github.com/ratelimitd/ratelimitd/internal/handshake"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// maxAnswerBytes is more than any decision, and any sensible list of policies.
const maxAnswerBytes = 8 << 20

// client asks one server. Errors say what to do, and never hold an identifier.
type client struct {
	server  *url.URL
	timeout time.Duration // of each request
	shown   *credentials
}

func (s *askSettings) client() *client { return &client{s.server, s.timeout, &s.shown} }

// question is one request to a server.
type question struct {
	verb           string
	body           any
	policy         string // that it is about; empty: none
	idempotencyKey string // empty: none
	holds          bool   // it is a check that reserves
}

// decision is what check, record and take answer, and the answer as it came.
type decision struct {
	Allowed    *bool  `json:"allowed"`
	Policy     string `json:"policy"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	Used       int64  `json:"used"`
	Mode       string `json:"mode"`
	WouldAllow *bool  `json:"would_allow"` // in mode shadow
	Blocked    bool   `json:"blocked"`
	Override   string `json:"override"` // its kind; empty: none decided
	Degraded   bool   `json:"degraded"`
	Recorded   string `json:"recorded"` // when degraded
	waits
	Limits      []limitDecision `json:"limits"`
	Receipt     string          `json:"receipt"`     // of what was recorded
	Reservation string          `json:"reservation"` // of what a check holds

	document []byte
	replayed bool // it is the recorded answer to an earlier request
}

type limitDecision struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Allowed   bool   `json:"allowed"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"remaining"`
	Used      int64  `json:"used"`
	waits
}

type waits struct {
	ResetAfterMS int64  `json:"reset_after_ms"`
	RetryAfterMS *int64 `json:"retry_after_ms"` // nil: no wait would help
}

// decide asks q, which is one of check, record and take.
func (c *client) decide(ctx context.Context, q *question) (*decision, error) {
	a, err := c.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	if d := a.decision(); d != nil {
		return d, nil
	}
	return nil, c.refused(ctx, q, a)
}

// reset asks q, which is answered by nothing.
func (c *client) reset(ctx context.Context, q *question) error {
	a, err := c.ask(ctx, q)
	if err != nil {
		return err
	}
	if a.status == http.StatusNoContent {
		return nil
	}
	return c.refused(ctx, q, a)
}

// policyInForce is as much of a policy as the completion shows.
type policyInForce struct{ Name, Description string }

func (c *client) policies(ctx context.Context) ([]policyInForce, error) {
	a, _, err := c.exchange(ctx, http.MethodGet, "policies", nil, nil)
	if err != nil {
		return nil, err
	}
	var list struct{ Policies []policyInForce }
	if a.status != http.StatusOK || a.mediaType != mediaJSON || json.Unmarshal(a.body, &list) != nil {
		return nil, a.foreign(&question{})
	}
	return list.Policies, nil
}

const (
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json"
)

// ask posts q, and explains why there is no answer when there is none.
func (c *client) ask(ctx context.Context, q *question) (*answer, error) {
	body, err := json.Marshal(q.body)
	if err != nil {
		return nil, errors.New("the request cannot be written as JSON") // never happens: its text is UTF-8
	}
	header := http.Header{"Content-Type": {mediaJSON}}
	if q.idempotencyKey != "" {
		header.Set("Idempotency-Key", q.idempotencyKey)
	}
	a, sent, err := c.exchange(ctx, http.MethodPost, q.verb, header, body)
	switch {
	case err == nil:
		return a, nil
	case handshake.FailureOf(err) != handshake.None:
		return nil, c.noTLS(err, q)
	case sent:
		return nil, &askError{fmt.Sprintf("no answer from %s: %v", c.server, err), q.aftermath(recordedUnknown)}
	}
	return nil, &askError{
		fmt.Sprintf("%s cannot be reached: %v", c.server, err),
		strings.TrimSpace(q.aftermath(recordedNo) + ` Is "ratelimitd serve" running there? ` + serverNamedBy),
	}
}

// noTLS is the error of a question for which the server and c did not come to speak TLS: it has
// not seen q.
func (c *client) noTLS(err error, q *question) error {
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
	return &askError{fmt.Sprintf("no TLS with %s: %v", c.server, err), strings.TrimSpace(q.aftermath(recordedNo) + " " + cure)}
}

// exchange sends one request. When there is no answer, sent says whether the
// server may have seen the request all the same.
func (c *client) exchange(ctx context.Context, method, route string, header http.Header, body []byte) (a *answer, sent bool, err error) {
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var connected atomic.Bool
	traced := httptrace.WithClientTrace(within, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(traced, method, c.server.JoinPath("v1", route).String(), bytes.NewReader(body))
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

// do follows no redirect: the identifier goes to the server that was named.
func (c *client) do(req *http.Request) (*answer, error) {
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
	a := &answer{server: c.server, status: resp.StatusCode, requestID: resp.Header.Get("X-Request-ID"), body: body}
	a.mediaType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type")) // none: that of no answer known here
	a.location, _ = resp.Location()                                          // nil: no redirect
	a.replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	return a, nil
}

// cause is err without the URL in front, and in the words of the flags.
func (c *client) cause(ctx context.Context, err error) error {
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

// answer is what a server sent, which need not be ratelimitd.
type answer struct {
	server    *url.URL
	status    int
	mediaType string
	requestID string
	location  *url.URL
	replayed  bool
	body      []byte
}

// decision returns nil when the answer is none. A 429 alone is no denial: proxies
// send it too.
func (a *answer) decision() *decision {
	allowed := a.status == http.StatusOK && a.mediaType == mediaJSON
	denied := a.status == http.StatusTooManyRequests && a.mediaType == mediaProblem
	d := &decision{document: a.body, replayed: a.replayed}
	if !allowed && !denied || json.Unmarshal(a.body, d) != nil {
		return nil
	}
	if d.Allowed == nil || *d.Allowed != allowed || len(d.Limits) == 0 {
		return nil
	}
	return d
}

// problem is an error of RFC 9457.
type problem struct{ Detail, Field, Recorded string }

// problem returns nil when the answer is none.
func (a *answer) problem() *problem {
	p := new(problem)
	if a.status < http.StatusBadRequest || a.mediaType != mediaProblem || json.Unmarshal(a.body, p) != nil || p.Detail == "" {
		return nil
	}
	return p
}

// refused is the error that a is when it is not what was asked for.
func (c *client) refused(ctx context.Context, q *question, a *answer) error {
	p := a.problem()
	if p == nil {
		return a.foreign(q)
	}
	what := fmt.Sprintf("the server answers %d: %s", a.status, strings.TrimPrefix(printable(p.Field)+": "+printable(p.Detail), ": "))
	switch {
	case a.status == http.StatusNotFound && p.Field == "policy":
		return &askError{what, c.otherPolicies(ctx, q.policy)}
	case a.status == http.StatusUnauthorized:
		return &askError{what, "The token to show is in the file that --token-file names, or in " + tokenVariable + "."}
	case a.status == http.StatusNotFound:
		return &askError{what, serverNamedBy}
	case a.status == http.StatusUnprocessableEntity && p.Field == "cost":
		return &askError{what, "Give a smaller --cost, or raise the policy's limit."}
	case a.status == http.StatusUnprocessableEntity && q.idempotencyKey != "":
		return &askError{what, "Give another --idempotency-key."}
	case a.status >= http.StatusInternalServerError:
		return &askError{what, strings.TrimSpace(q.aftermath(p.Recorded) + a.inTheLog())}
	}
	return &askError{what: what}
}

// otherPolicies says which policies there are, if the server does.
func (c *client) otherPolicies(ctx context.Context, name string) string {
	inForce, err := c.policies(ctx)
	if err != nil || len(inForce) == 0 {
		return ""
	}
	names := make([]string, len(inForce))
	for i, p := range inForce {
		names[i] = printable(p.Name)
	}
	return "Policy: " + yamlfile.DidYouMean(name, names)
}

func (a *answer) inTheLog() string {
	if a.requestID == "" {
		return ""
	}
	return " The server's log has it as request " + printable(a.requestID) + "."
}

// foreign is the error of an answer that ratelimitd does not give.
func (a *answer) foreign(q *question) error {
	what := fmt.Sprintf("%s does not answer as ratelimitd does: status %d, content type %q", a.server, a.status, printable(a.mediaType))
	cure := serverNamedBy
	switch {
	case a.status == http.StatusBadRequest && bytes.Contains(a.body, []byte("HTTP request to an HTTPS server")):
		cure = strings.TrimSpace(q.aftermath(recordedNo) + " Give --server https://" + a.server.Host + ".")
		return &askError{fmt.Sprintf("%s speaks TLS alone", a.server), cure}
	case a.location != nil && a.status < http.StatusBadRequest:
		to := url.URL{Scheme: a.location.Scheme, Host: a.location.Host}
		what += ", a redirect to " + printable(to.String())
	case a.status < http.StatusBadRequest || a.status >= http.StatusInternalServerError:
		cure = strings.TrimSpace(q.aftermath(recordedUnknown) + " " + cure)
	}
	return &askError{what, cure}
}
