package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Bounds of bodies in bytes.
const (
	maxBodyLen  = 64 << 10 // 16 demands of the longest identifier come to 20 KiB; escapes make it more
	maxBatchLen = 1 << 20  // 1000 operations of a kilobyte
)

// decodeReset reads {"policy", "identifier"}.
func decodeReset(r *http.Request, m *scratch) (d limiter.Demand, err error) {
	body, err := readJSON(r, m, maxBodyLen)
	if err != nil {
		return d, err
	}
	seen, err := readObject(body, keyNames, func(name string, v value) error { return readDemandMember(&d, name, v) })
	if err != nil {
		return d, err
	}
	if err := requireDemand(seen); err != nil {
		return d, err
	}
	return d, mayUse(m.caller, d.Policy)
}

func decodeNothing(*http.Request, *scratch) (struct{}, error) { return struct{}{}, nil }

// decodePolicyName reads the name in the path. One that is not decodable is the
// name of no policy.
func decodePolicyName(r *http.Request, m *scratch) (string, error) {
	name, err := url.PathUnescape(chi.URLParam(r, "name"))
	if err != nil {
		return "", limiter.ErrUnknownPolicy
	}
	return name, mayUse(m.caller, name)
}

// readJSON returns the body, which may have most bytes, as one JSON value.
// Errors never quote it.
func readJSON(r *http.Request, m *scratch, most int64) (value, error) {
	if !isJSON(r.Header) {
		return "", errNotJSON
	}
	if r.ContentLength > most {
		return "", tooLarge(most)
	}
	err := m.readBody(r.Body, int(most))
	switch {
	case errors.Is(err, errBusy):
		m.discharge()
		return "", &callError{recorded: limiter.RecordedNo, err: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "", errTooSlow
	case err != nil:
		return "", &requestError{kind: errBody, detail: "The body ended before it was whole."}
	case int64(len(m.in)) > most:
		return "", tooLarge(most)
	}
	m.whole = true
	return parse(m.in)
}

func tooLarge(most int64) error {
	return &requestError{kind: errTooLarge, detail: "The body is longer than the " + itoa(most) + " bytes that this route takes."}
}

// isJSON reports whether the body is declared to be plain JSON in UTF-8.
func isJSON(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
		return false
	}
	declared := h.Get("Content-Type")
	if declared == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(declared)
	charset, given := params["charset"]
	return err == nil && media == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}

// parse returns the one JSON value that body is.
func parse(body []byte) (value, error) {
	trimmed := bytes.Trim(body, " \t\r\n")
	mistake := func(detail string) error { return &requestError{kind: errBody, detail: detail} }
	switch {
	case len(trimmed) == 0:
		return "", mistake("The body is empty: send a JSON object.")
	case !utf8.Valid(body):
		return "", mistake("The body is not valid UTF-8.")
	case isWellFormed(trimmed), json.Valid(body):
		return value(trimmed), nil
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); !errors.As(err, &syntax) {
		return "", mistake("The body is not JSON.")
	}
	at := strconv.FormatInt(syntax.Offset, 10)
	if strings.Contains(syntax.Error(), "after top-level value") { // its text is all that tells the two apart
		return "", mistake("There is more after the JSON value, at byte " + at + ".")
	}
	return "", mistake("The body is not JSON: it goes wrong at byte " + at + ".")
}

func wrong(field, detail string) error {
	return &requestError{kind: limiter.ErrInvalid, field: field, detail: detail}
}
