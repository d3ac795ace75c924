package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
)

// errNoAddress is the error of a line without a client's address.
var errNoAddress = errors.New("it has no address of a client: give --format if it is elsewhere, " +
	"or --identifier if callers are told apart by another field")

// errSeveral is the error of a line with several addresses, any of which may be the client's.
var errSeveral = errors.New("several addresses stand before the time, and nothing tells which one is the client's: give --format")

// parseClient returns the address in text, without a port. If text is a list of addresses, as in X-Forwarded-For, it is
// the first one, and listed is true.
func parseClient(text []byte) (address []byte, listed bool, err error) {
	first, rest, _ := bytes.Cut(text, comma)
	address = hostOf(bytes.TrimSpace(first))
	if !isAddress(address) {
		return nil, false, errNoAddress
	}
	return address, len(bytes.TrimSpace(rest)) > 0, nil
}

// isAddress reports whether text is an address, or a network in place of one.
func isAddress(text []byte) bool {
	if len(text) < len("::") || !inAddress[text[0]] || !inAddress[text[1]] {
		return false
	}
	if bytes.IndexByte(text, '/') >= 0 {
		_, err := netip.ParsePrefix(string(text))
		return err == nil
	}
	_, err := netip.ParseAddr(string(text))
	return err == nil
}

// inAddress are the bytes that an address may begin with.
var inAddress = func() (in [256]bool) {
	for _, c := range []byte("0123456789abcdefABCDEF:.") {
		in[c] = true
	}
	return in
}()

// hostOf returns an address without its port, if it has one: 192.0.2.1:80, or [2001:db8::1]:80.
func hostOf(address []byte) []byte {
	if len(address) > 0 && address[0] == '[' {
		host, _, _ := bytes.Cut(address[1:], bracket)
		return host
	}
	if colon := bytes.IndexByte(address, ':'); colon >= 0 && bytes.IndexByte(address[colon+1:], ':') < 0 {
		return address[:colon]
	}
	return address
}

var bracket, comma = []byte("]"), []byte(",")
