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

// pathOf returns the path of a URI, without the query, and without scheme and host.
func pathOf(uri []byte) []byte {
	if len(uri) > 0 && uri[0] != '/' {
		if _, after, absolute := bytes.Cut(uri, authority); absolute {
			at := bytes.IndexByte(after, '/')
			if at < 0 {
				return root
			}
			uri = after[at:]
		}
	}
	path, _, _ := bytes.Cut(uri, question)
	return path
}

var space, question, authority, root = []byte(" "), []byte("?"), []byte("://"), []byte("/")
