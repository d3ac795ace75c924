package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

const (
	maxBodyLen = 64 << 10 // bytes: 16 demands of the longest identifier, every byte of it escaped, come to less
	maxDemands = 1        // of one call; bodies have room for more
)

// demands is the body of check, record and take.
type demands struct {
	list   []limiter.Demand
	listed bool // the body has "demands", and so has the answer
}

// decodeDemands reads {"policy", "identifier", "cost"} or {"demands": [...]}.
func decodeDemands(r *http.Request, m *scratch) (in demands, err error) {
	body, err := readJSON(r, m)
	if err != nil {
		return in, err
	}
	one := make([]limiter.Demand, 1)
	seen, err := readObject(body, "", append(demandFields(&one[0]), field{"demands", func(v value) (err error) {
		in.list, err = readDemands(v)
		return err
	}}))
	switch {
	case err != nil:
		return in, err
	case !seen("demands"):
		in.list = one
		return in, requireDemand(seen, "")
	case seen("policy") || seen("identifier") || seen("cost"):
		return in, wrong("demands", "Give either demands, or policy, identifier and cost; not both.")
	}
	in.listed = true
	return in, nil
}

// decodeCounted is decodeDemands for what records. An Idempotency-Key is refused
// rather than ignored: who sends one retries, and would be counted twice.
func decodeCounted(r *http.Request, m *scratch) (demands, error) {
	if r.Header["Idempotency-Key"] != nil {
		return demands{}, wrong("Idempotency-Key", "This version does not support idempotency keys: send the request without one.")
	}
	return decodeDemands(r, m)
}

// decodeReset reads {"policy", "identifier"}.
func decodeReset(r *http.Request, m *scratch) (d limiter.Demand, err error) {
	body, err := readJSON(r, m)
	if err != nil {
		return d, err
	}
	seen, err := readObject(body, "", keyFields(&d))
	if err != nil {
		return d, err
	}
	return d, requireDemand(seen, "")
}

func decodeNothing(*http.Request, *scratch) (struct{}, error) { return struct{}{}, nil }

// decodePolicyName reads the name in the path. One that is not decodable is the
// name of no policy.
func decodePolicyName(r *http.Request, _ *scratch) (string, error) {
	name, err := url.PathUnescape(chi.URLParam(r, "name"))
	if err != nil {
		return "", limiter.ErrUnknownPolicy
	}
	return name, nil
}

func keyFields(d *limiter.Demand) []field {
	return []field{
		{"policy", func(v value) (err error) { d.Policy, err = v.text(); return err }},
		{"identifier", func(v value) error {
			id, err := v.text()
			d.Identifier = limiter.Identifier(id)
			return err
		}},
	}
}

func demandFields(d *limiter.Demand) []field {
	return append(keyFields(d), field{"cost", func(v value) (err error) {
		d.Cost, err = v.integer(1, limiter.MaxCost)
		return err
	}})
}

func requireDemand(seen func(string) bool, path string) error {
	for _, name := range []string{"policy", "identifier"} {
		if !seen(name) {
			return wrong(path+name, "It is missing.")
		}
	}
	return nil
}

func readDemands(v value) ([]limiter.Demand, error) {
	if v[0] != '[' {
		return nil, v.not("an array of demands")
	}
	elements := slices.Collect(v.elements())
	if len(elements) == 0 || len(elements) > maxDemands {
		return nil, wrong("", "This version takes exactly one demand in a call, and "+strconv.Itoa(len(elements))+" are here.")
	}
	list := make([]limiter.Demand, len(elements))
	for i, e := range elements {
		path := demandPath(i)[len("demands"):]
		seen, err := readObject(e, path, demandFields(&list[i]))
		if err == nil {
			err = requireDemand(seen, path)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// demandPath is what the fields of demand i are called by in a problem.
func demandPath(i int) string { return "demands[" + strconv.Itoa(i) + "]." }

// readJSON returns the body as one JSON value in m. Errors never quote it.
func readJSON(r *http.Request, m *scratch) (value, error) {
	if !isJSON(r.Header) {
		return nil, errNotJSON
	}
	if r.ContentLength > maxBodyLen {
		return nil, errTooLarge
	}
	buf := bytes.NewBuffer(m.in[:0])
	_, err := buf.ReadFrom(io.LimitReader(r.Body, maxBodyLen+1))
	m.in = buf.Bytes()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errTooSlow
	case err != nil:
		return nil, &requestError{kind: errBody, detail: "The body ended before it was whole."}
	case len(m.in) > maxBodyLen:
		return nil, errTooLarge
	}
	return parse(m.in)
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
	malformed := func(detail string) error { return &requestError{kind: errBody, detail: detail} }
	switch {
	case len(trimmed) == 0:
		return nil, malformed("The body is empty: send a JSON object.")
	case !utf8.Valid(body):
		return nil, malformed("The body is not valid UTF-8.")
	case json.Valid(body):
		return trimmed, nil
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); !errors.As(err, &syntax) {
		return nil, malformed("The body is not JSON.")
	}
	at := strconv.FormatInt(syntax.Offset, 10)
	if strings.Contains(syntax.Error(), "after top-level value") { // its text is all that tells the two apart
		return nil, malformed("There is more after the JSON value, at byte " + at + ".")
	}
	return nil, malformed("The body is not JSON: it goes wrong at byte " + at + ".")
}

func wrong(field, detail string) error {
	return &requestError{kind: limiter.ErrInvalid, field: field, detail: detail}
}
