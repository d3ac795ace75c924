package api

import (
	"context"
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var openAPI []byte

// yaml is the answer of GET /openapi.yaml.
type yaml []byte

// render writes the document as it is.
func (a yaml) render(h http.Header, b []byte) (status int, body []byte) {
	h["Content-Type"] = contentTypeYAML
	return http.StatusOK, append(b, a...)
}

func (s *Server) openapi(context.Context, struct{}) (answer, error) { return yaml(openAPI), nil }
