package clitest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	t    *testing.T
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority whose own certificate has this name, and is valid for an hour.
func NewAuthority(t *testing.T, name string) *Authority {
	t.Helper()
	return NewAuthorityUntil(t, name, time.Now().Add(time.Hour))
}

// NewAuthorityUntil is NewAuthority with a certificate that expires at this time, to the second.
func NewAuthorityUntil(t *testing.T, name string, expires time.Time) *Authority {
	t.Helper()
	a := &Authority{t: t}
	a.Cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: expires,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *Authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	parent, signer := a.Cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// Issue returns a certificate for name and its key, in PEM.
func (a *Authority) Issue(name string) (cert, key string) {
	a.t.Helper()
	signed, private := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return toPEM("CERTIFICATE", signed.Raw), toPEM("PRIVATE KEY", der)
}

// PEM returns the certificate of a.
func (a *Authority) PEM() string { return toPEM("CERTIFICATE", a.Cert.Raw) }

func toPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}
