package http1_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTLS holds that the handler of an encrypted request knows of that.
func TestTLS(t *testing.T) {
	certified := httptest.NewTLSServer(http.NotFoundHandler())
	defer certified.Close()
	for name, by := range map[string]func(*http.Server) server{"fast": fast, "std": std} {
		t.Run(name, func(t *testing.T) {
			listener := listen(t)
			s := by(newServer(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, r.TLS != nil) }))
			served := make(chan error, 1)
			go func() {
				served <- s.Serve(tls.NewListener(listener, &tls.Config{Certificates: certified.TLS.Certificates, MinVersion: tls.VersionTLS12}))
			}()
			defer ended(t, s, served)
			res, err := certified.Client().Post("https://"+listener.Addr().String(), "text/plain", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if body, err := io.ReadAll(res.Body); string(body) != "true" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
}
