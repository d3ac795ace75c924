// Package handshake explains, by a client's error, why a TLS handshake with a server failed. No request has reached the
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

// Failure is the reason why a handshake failed.
type Failure int

// The failures. The zero Failure means that the error is not about a handshake.
const (
	None      Failure = iota
	NoTLS             // the server does not speak TLS
	Untrusted         // no trusted authority has signed the server's certificate
	OtherName         // the server's certificate is for other names
	Unshown           // the server requires a client certificate, or another one
	Failed            // another reason, such as an expired certificate
)

// refusals are the alerts by which a server ends a handshake. In TLS 1.3 the client receives them in place of the
// answer.
var refusals = []string{"handshake failure", "protocol version not supported", "unrecognized name", "no application protocol",
	"insufficient security"}

// FailureOf returns the reason if err is the error of a handshake, and 0 if not.
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
	if strings.Contains(text, "certificate") { // crypto/tls has no type for alerts
		return Unshown
	}
	for _, refusal := range refusals {
		if strings.Contains(text, refusal) {
			return Failed
		}
	}
	return None
}
