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

// static has the page and the files that it loads, which are the same on every instance.
//
//go:embed static
var static embed.FS

// indexFile is the page itself.
const indexFile = "index.html"

// securityPolicy is the page's Content-Security-Policy: nothing inline, nothing from elsewhere, no text that
// becomes a script, in no frame. No form is sent by the browser itself, so that no identifier gets into a URL.
const securityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// contentTypes are the content types of the files, by their extensions.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	"":      "text/plain; charset=utf-8",
}

// file is a file of static.
type file struct {
	content     []byte
	contentType string
	etag        string
}

// Page returns a handler that serves the page at any path that ends with /ui, and its files below. It needs no
// authentication, because it has no figures.
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

// serve answers with f. It copies nothing, so that clients that do not read take no memory.
func (f *file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Content-Security-Policy", securityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache") // but revalidated by ETag
	h.Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(f.content)))
	_, _ = w.Write(f.content) // it fails if the client is gone
}
