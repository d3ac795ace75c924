package api

import (
	_ "embed"
	"net/http"
	"strconv"
)

var contentTypeYAML = []string{"application/yaml"} // RFC 9512

//go:embed openapi.yaml
var openAPI []byte

// openapi answers GET /openapi.yaml. It copies nothing, so that clients that do not read take no memory.
func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h["Content-Type"], h["Content-Length"] = contentTypeYAML, []string{strconv.Itoa(len(openAPI))}
	_, _ = w.Write(openAPI) // it fails if the client is gone
}
