package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// static is the page, and what it loads. Nothing in it differs from instance to instance.
//
//go:embed static
var static embed.FS

// indexFile is the page itself.
const indexFile = "index.html"

// securityPolicy is the page's Content-Security-Policy: nothing inline, nothing from elsewhere, no text that
// becomes a script, in no frame. No form is sent by the browser itself, so that no identifier gets into a URL.
const securityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// contentTypes are those of the files, by what their names end with.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	"":      "text/plain; charset=utf-8",
}

// file is one of static.
type file struct {
	content     []byte
	contentType string
	etag        string
}

// Page returns a handler that serves the page at any path that ends with /ui, and what it loads below
// that. It has no authentication: there are no figures in it.
func Page() http.Handler {
	files := make(map[string]*file)
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := static.ReadFile(name)
		sum := sha256.Sum256(content)
		files[strings.TrimPrefix(name, "static/")] = &file{content, contentTypes[path.Ext(name)], `"` + hex.EncodeToString(sum[:8]) + `"`}
		return err
	})
	if err != nil {
		panic(err) // never: the files are in the program
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, name, below := strings.Cut(r.URL.Path, "/ui/")
		if !below {
			name = indexFile
		}
		f, found := files[name]
		if !found {
			http.NotFound(w, r)
			return
		}
		f.serve(w, r)
	})
}

// serve answers with f. It copies nothing: clients that do not read take no memory.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", securityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // but asked for again, by ETag
	h.Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(f.content)))
	_, _ = w.Write(f.content) // it fails when the client is gone, and there is nobody else to tell
}
