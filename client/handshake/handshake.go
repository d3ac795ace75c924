// Package handshake explains by a client's error why a TLS handshake with a server failed. No request has reached the
// server then.
//
// It knows neither callers nor requests. It is shared with the service, and may change in any release.
package handshake

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
)

// Failure is why a handshake failed.
type Failure int

// The failures. The zero Failure is none: the error is of something else.
const (
	None      Failure = iota
	NoTLS             // the server speaks something else
	Untrusted         // no authority that the client trusts has signed the server's certificate
	OtherName         // the server's certificate is of other names
	Unshown           // the server wants a certificate of the client, or another one
	Failed            // anything else, such as a certificate that has expired
)

// refusals are alerts by which a server ends a handshake that it does not agree to. In TLS 1.3
// the client hears of them with the answer that it waits for.
var refusals = []string{"handshake failure", "protocol version not supported", "unrecognized name", "no application protocol",
	"insufficient security"}

// FailureOf returns why err is the error of a handshake.
func FailureOf(err error) Failure {
	switch {
	case errors.As(err, new(tls.RecordHeaderError)), err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return NoTLS
	case errors.As(err, new(x509.UnknownAuthorityError)):
		return Untrusted
	case errors.As(err, new(x509.HostnameError)):
		return OtherName
	case errors.As(err, new(*tls.CertificateVerificationError)), err != nil && strings.Contains(err.Error(), "TLS handshake timeout"):
		return Failed
	}
	alert, ok := errors.AsType[*net.OpError](err)
	if !ok || alert.Op != "remote error" {
		return None
	}
	text := alert.Error()
	if strings.Contains(text, "certificate") { // crypto/tls has no type of an alert
		return Unshown
	}
	for _, refusal := range refusals {
		if strings.Contains(text, refusal) {
			return Failed
		}
	}
	return None
}
