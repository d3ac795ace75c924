package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Policies keeps versions of the policies that instances share.
type Policies interface {
	// Apply makes text, the contents of a file, the latest version, if have is still the latest, or have is AnyVersion. It
	// returns its changes as attributes of a log line. Errors wrap encode.ErrNotLatest, encode.ErrFromFile or, with the
	// mistakes in the text, limiter.ErrInvalid. After any other error, the text may come into force.
	Apply(ctx context.Context, text []byte, have int64, by string) (PolicyVersion, []slog.Attr, error)
	// Versions returns the versions that are kept, the latest first.
	Versions(ctx context.Context) ([]PolicyVersion, error)
	// Version returns a version with its text. The error wraps encode.ErrNoVersion if it is not kept.
	Version(ctx context.Context, number int64) (PolicyVersion, []byte, error)
}

// AnyVersion lets Apply replace any latest version.
const AnyVersion int64 = -1

// PolicyVersion describes a version of the policies.
type PolicyVersion struct {
	Version  int64     `json:"version"`
	Digest   string    `json:"digest"` // of its text: SHA-256, in hex
	Policies int       `json:"policies"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
}

// policyVersionList is the answer of GET /v1/policy-versions.
type policyVersionList struct {
	Versions []PolicyVersion `json:"versions"`
}

// policyVersionText is the answer of GET /v1/policy-versions/{version}.
type policyVersionText struct {
	PolicyVersion
	Text string `json:"text"`
}

// tagged is a document with the ETag of a version.
type tagged struct {
	encode.Document
	version int64
}

// Render writes the document.
func (t tagged) Render(h http.Header, b []byte) (status int, body []byte) {
	h.Set("ETag", `"`+strconv.FormatInt(t.version, 10)+`"`)
	return t.Document.Render(h, b)
}

// maxPolicies is the maximum size of a text of policies in bytes, as for files.
const maxPolicies = 1 << 20

// newPolicies is a request of PUT /v1/policies.
type newPolicies struct {
	by   asker
	text []byte
	have int64
}

// decodePolicies reads a file of policies, in YAML or JSON, and the version that it replaces.
func decodePolicies(r *http.Request, m *scratch) (p newPolicies, err error) {
	if err := mayUseAll(m.caller); err != nil {
		return p, err
	}
	if !isPolicies(r.Header) {
		return p, &decode.Error{
			Kind: decode.ErrNotJSON, Field: "Content-Type",
			Detail: "Send a file of policies, with Content-Type: application/yaml or application/json.",
		}
	}
	if p.have, err = versionOf(r.Header["If-Match"]); err != nil {
		return p, err
	}
	text, err := m.body.ReadText(r, maxPolicies, &m.share)
	p.text, p.by = bytes.Clone(text), m.askerOf(r) // the text is kept, and the memory of the body reused
	return p, err
}

// isPolicies reports whether h declares a body that may be a file of policies.
func isPolicies(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && h.Get("Content-Encoding") == "" && (media == "application/yaml" || media == "application/json")
}

// versionOf returns the version that If-Match names.
func versionOf(ifMatch []string) (int64, error) {
	if len(ifMatch) == 0 {
		return 0, encode.ErrNoIfMatch
	}
	tag := strings.TrimSpace(ifMatch[0])
	if tag == "*" && len(ifMatch) == 1 {
		return AnyVersion, nil
	}
	number, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
	if err != nil || number < 0 || len(ifMatch) > 1 || tag != `"`+strconv.FormatInt(number, 10)+`"` {
		return 0, decode.Wrong("If-Match", `It is not an ETag of GET /v1/policies: send one, such as "7", or *.`)
	}
	return number, nil
}

// mayUseAll returns an error if caller may use some policies only.
func mayUseAll(caller *auth.Caller) error {
	if caller.MayUseAll() {
		return nil
	}
	return &decode.Error{Kind: auth.ErrForbidden, Detail: "The caller may use some policies only, and this route needs all policies."}
}

// decodeCallerOfAll is decodeCaller for requests about all policies.
func decodeCallerOfAll(_ *http.Request, m *scratch) (*auth.Caller, error) {
	return m.caller, mayUseAll(m.caller)
}

// applyPolicies makes a version.
func (s *Server) applyPolicies(ctx context.Context, p newPolicies) (answer, error) {
	made, changes, err := s.opts.Policies.Apply(ctx, p.text, p.have, p.by.name())
	if err != nil {
		err = withoutStore(err, "The store does not answer: whether the policies come into force is unknown. GET /v1/policies tells.")
	} else {
		changes = append([]slog.Attr{slog.Int64("version", made.Version), slog.String("digest", made.Digest)}, changes...)
	}
	s.audit(ctx, &p.by, "policies.apply", new(limiter.Demand), err, changes...)
	if err != nil {
		return nil, err
	}
	return tagged{encode.Document{Content: made}, made.Version}, nil
}

const storeAway = "The store does not answer. Try again shortly."

// withoutStore returns err with this detail if the store did not answer. The usual detail is about counts.
func withoutStore(err error, detail string) error {
	if errors.Is(err, store.ErrUnavailable) {
		return &decode.Error{Kind: store.ErrUnavailable, Detail: detail}
	}
	return err
}

// policyVersions lists the versions that are kept.
func (s *Server) policyVersions(ctx context.Context, _ *auth.Caller) (answer, error) {
	all, err := s.opts.Policies.Versions(ctx)
	if err != nil {
		return nil, withoutStore(err, storeAway)
	}
	return encode.Document{Content: policyVersionList{append([]PolicyVersion{}, all...)}}, nil
}

// decodePolicyVersion reads the number in the path. Other text is that of an unknown version.
func decodePolicyVersion(r *http.Request, m *scratch) (int64, error) {
	if err := mayUseAll(m.caller); err != nil {
		return 0, err
	}
	number, err := strconv.ParseInt(chi.URLParam(r, "version"), 10, 64)
	if err != nil {
		return 0, encode.ErrNoVersion
	}
	return number, nil
}

// policyVersion answers with a version and its text.
func (s *Server) policyVersion(ctx context.Context, number int64) (answer, error) {
	v, text, err := s.opts.Policies.Version(ctx, number)
	if err != nil {
		return nil, withoutStore(err, storeAway)
	}
	return tagged{encode.Document{Content: policyVersionText{v, string(text)}}, v.Version}, nil
}
