package proxy

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"syscall"
)

// failureOf returns why an application did not answer, in words that hold nothing of what it
// sent: errors of package http repeat that, and it may be about anybody.
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
		return "no TLS connection came about"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "it closed the connection"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "no way leads to it"
	}
	return "what it sent is no answer that can be used"
}

// brokenOff returns the log of a ReverseProxy, which has a line for each answer that could not
// be read to its end. The line repeats bytes that were read, so it is replaced.
func (p *Proxy) brokenOff() *log.Logger { return log.New(noter{p}, "", 0) }

// noter notes that an answer broke off, whatever is written to it.
type noter struct{ *Proxy }

// Write notes one line.
func (n noter) Write(line []byte) (int, error) {
	n.note("an answer of the application broke off")
	return len(line), nil
}
