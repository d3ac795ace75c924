package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"syscall"
)

// failureOf returns the reason why an application did not answer. It quotes nothing that the application sent, which
// may contain identifiers, as errors of package http do.
func failureOf(err error) string {
	var (
		timeout     net.Error
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		noTLS       tls.RecordHeaderError
		alert       tls.AlertError
	)
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return "not in time"
	case errors.As(err, &name):
		return "its name has no address"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connections are refused"
	case errors.As(err, &certificate):
		return "its certificate cannot be verified"
	case errors.As(err, &noTLS), errors.As(err, &alert):
		return "the TLS handshake failed"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it closed the connection"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "there is no route to it"
	}
	return "its answer cannot be used"
}

// brokenOff returns the log of a ReverseProxy, which has a line for each answer that breaks off. The line quotes bytes
// of the answer, so it is replaced.
func (p *Proxy) brokenOff() *log.Logger { return log.New(noter{p}, "", 0) }

// noter logs for each write that an answer broke off.
type noter struct{ *Proxy }

// Write logs one line.
func (n noter) Write(line []byte) (int, error) {
	n.note("an answer of the application broke off")
	return len(line), nil
}
