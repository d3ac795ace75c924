package api

import (
	"context"
	"mime"
	"net/http"
	"runtime"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// mediaLines is the media type of newline-delimited JSON: https://github.com/ndjson/ndjson-spec.
const mediaLines = "application/x-ndjson"

var contentTypeLines = []string{mediaLines}

// acceptsLines reports whether the caller accepts the media type of lines.
func acceptsLines(h http.Header) bool {
	for _, list := range h["Accept"] {
		if !strings.Contains(strings.ToLower(list), mediaLines) {
			continue
		}
		for item := range strings.SplitSeq(list, ",") {
			if name, params, err := mime.ParseMediaType(item); err == nil && name == mediaLines && params["q"] != "0" {
				return true
			}
		}
	}
	return false
}

// streamed is a batch whose results are sent as soon as they are known, each on a line of its own. A denial from memory
// does not wait for operations that ask the store.
type streamed struct {
	*batched
	server *Server
	ctx    context.Context
}

// send decides the operations and sends their results, and returns all of them.
func (a *streamed) send(x *exchange) *batched {
	ready := make(chan int, len(a.ops)) // closed when all operations have ended
	lanes := lanesOf(a.ops, a.server.canonical)
	tell := func(at ...int) {
		for _, i := range at {
			ready <- i
		}
	}
	for i := range a.ops {
		if a.ops[i].err != nil {
			tell(i)
		}
	}
	go func() {
		defer close(ready)
		a.server.inLanes(a.ctx, a.ops, lanes, tell)
	}()
	defer func() { // also after a panic, because the next request reuses the operations
		for range ready {
		}
	}()
	x.Header()["Content-Type"] = contentTypeLines
	control := http.NewResponseController(x.ResponseWriter)
	for left := len(a.ops); left > 0; {
		b := a.appendLine(x.out[:0], <-ready)
		left--
		b, left = a.gather(b, ready, left)
		x.out = b
		_, _ = x.Write(b) // it fails if the client is gone; operations that have begun are decided nevertheless
		if left > 0 {
			_ = control.Flush()
		}
	}
	return newBatched(a.ops)
}

// gather appends the results that are ready, and returns how many of the left ones are still missing. It yields once before
// it returns, so that other goroutines add their results: few parts cost less than many.
func (a *streamed) gather(b []byte, ready <-chan int, left int) ([]byte, int) {
	for yielded := false; left > 0; {
		select {
		case i := <-ready:
			b = a.appendLine(b, i)
			left--
			yielded = false
			continue
		default:
		}
		if yielded {
			break
		}
		runtime.Gosched()
		yielded = true
	}
	return b, left
}

// appendLine appends the line of operation i.
func (a *streamed) appendLine(b []byte, i int) []byte {
	o := &a.ops[i]
	if o.err != nil {
		o.problem = encode.ProblemOf(o.err)
	}
	b = append(encode.AppendInt(b, `{"index":`, int64(i)), ',')
	return append(o.appendMembers(b), "}\n"...)
}
