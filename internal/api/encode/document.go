package encode

import (
	"encoding/json"
	"net/http"
)

// Values of Content-Type for a header map. They are shared and must not be changed.
var (
	ContentTypeJSON    = []string{"application/json"}
	contentTypeProblem = []string{"application/problem+json"}
)

// Document is an answer with status 200 that encoding/json encodes.
type Document struct{ Content any }

// Render writes the document.
func (a Document) Render(h http.Header, b []byte) (status int, body []byte) {
	content, err := json.Marshal(a.Content)
	if err != nil { // a mistake in this package: the type can't be encoded
		return ProblemOf(err).Render(h, b)
	}
	h["Content-Type"] = ContentTypeJSON
	return http.StatusOK, append(append(b, content...), '\n')
}

// Nothing is the answer with status 204.
type Nothing struct{}

// Render writes no body.
func (Nothing) Render(_ http.Header, b []byte) (status int, body []byte) {
	return http.StatusNoContent, b
}
