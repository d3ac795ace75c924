package command

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// ClientFiles are the files of a TLS client, each beside its flag. A file that is not used is empty.
type ClientFiles struct{ CAFlag, CA, CertFlag, Cert, KeyFlag, Key string }

// ClientTLS returns a configuration of TLS by files, and when the first of the authorities in CA expires, zero without
// a CA.
func ClientTLS(f ClientFiles) (config *tls.Config, authority time.Time, err error) {
	config = &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("reading %s: %w", f.CAFlag, err)
		}
		if config.RootCAs, authority, err = Authorities(pem); err != nil {
			return nil, time.Time{}, fmt.Errorf("%s: %s: %w", f.CAFlag, f.CA, err)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, time.Time{}, errors.New(f.CertFlag + " and " + f.KeyFlag + " need each other")
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("reading %s and %s: %w", f.CertFlag, f.KeyFlag, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, authority, nil
}

// Authorities returns all certificates of a PEM file, and when the first of them expires. A damaged or truncated
// certificate is an error.
func Authorities(file []byte) (pool *x509.CertPool, expires time.Time, err error) {
	if len(file) > yamlfile.MaxSize {
		return nil, time.Time{}, fmt.Errorf("it is longer than %d bytes", yamlfile.MaxSize)
	}
	pool = x509.NewCertPool()
	blocks, certificates := 0, 0
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("its block %d: %w", blocks, err)
		}
		pool.AddCert(certificate)
		if certificates == 0 || certificate.NotAfter.Before(expires) {
			expires = certificate.NotAfter
		}
		certificates++
	}
	switch begun := bytes.Count(file, []byte("-----BEGIN ")); {
	case blocks < begun:
		return nil, time.Time{}, fmt.Errorf("of its %d blocks %d can be read: the others are damaged or cut off", begun, blocks)
	case certificates == 0:
		return nil, time.Time{}, errors.New("there is no certificate in it: it must be PEM")
	}
	return pool, expires, nil
}
