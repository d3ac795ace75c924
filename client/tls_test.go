package client_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// TestNothingCountsWithoutTLS calls servers that don't come to speak TLS with the client:
// nothing of the call has reached them.
func TestNothingCountsWithoutTLS(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	strange := httptest.NewTLSServer(http.NotFoundHandler())
	defer strange.Close()
	strange.Config.ErrorLog = quiet
	mutual := httptest.NewUnstartedServer(http.NotFoundHandler())
	mutual.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}
	mutual.Config.ErrorLog = quiet
	mutual.StartTLS()
	defer mutual.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, c := range map[string]struct {
		url       string
		transport http.RoundTripper
	}{
		"an authority that is not known": {strange.URL, nil},
		"no certificate":                 {mutual.URL, mutual.Client().Transport},
		"no answer to a handshake":       {"https://" + silent.Addr().String(), &http.Transport{TLSHandshakeTimeout: time.Millisecond}},
		"no TLS":                         {strings.Replace(plain.URL, "http:", "https:", 1), nil},
	} {
		// So much time that no call ends for want of it: whether that one counts is unknown.
		limits, err := client.New(c.url, &client.Options{Transport: c.transport, Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // whichever way the answer to the certificate comes
			if _, err := limits.Record(t.Context(), client.Demand{Policy: "api", Identifier: "a"}); client.RecordedOf(err) != client.RecordedNo {
				t.Errorf("%s: %v", name, err)
			}
		}
		limits.Close()
	}
}
