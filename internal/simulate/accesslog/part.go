package accesslog

import "bytes"

// The parts of a line of a request, such as "GET /login?a=b HTTP/1.1".

func methodOf(request []byte) []byte {
	method, _, _ := bytes.Cut(request, space)
	return method
}

func uriOf(request []byte) []byte {
	_, rest, _ := bytes.Cut(request, space)
	uri, _, _ := bytes.Cut(rest, space)
	return uri
}

func pathOfRequest(request []byte) []byte { return pathOf(uriOf(request)) }

// pathOf returns what of a URI stands before a question mark.
func pathOf(uri []byte) []byte {
	path, _, _ := bytes.Cut(uri, question)
	return path
}

// hostOf returns an address without its port: of 192.0.2.1:80, of [2001:db8::1]:80 and of either
// without.
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

// firstOf returns the first of a list with commas, as X-Forwarded-For has it.
func firstOf(list []byte) []byte {
	first, _, _ := bytes.Cut(list, comma)
	return bytes.TrimSpace(first)
}

var space, question, bracket, comma = []byte(" "), []byte("?"), []byte("]"), []byte(",")
