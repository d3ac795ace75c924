// Package decode reads requests: JSON, more strictly than encoding/json, and the calls in it. Its errors use the names
// of the API.
//
// It has the parts that several endpoints share. It knows nothing about permissions, answers and statuses.
package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/api/memory"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// MaxBody is the maximum size of bodies in bytes, except of batches. 16 demands with the longest identifiers take 20
// KiB, and more with escapes.
const MaxBody = 64 << 10

// Bounds of the memory that a Body keeps for the next request.
const (
	maxKept         = 128 << 10 // bytes of a body: a call takes about a hundred
	maxKeptElements = 1000      // of an array: as many as a batch has
	firstRead       = 512       // bytes: a call of one demand is shorter
)

// Body is the body of a request, in memory that later requests reuse. The zero value is ready to use.
type Body struct {
	text     []byte
	whole    bool
	elements []Value // of an array, while it is read
}

// Whole reports whether all of the body was read.
func (b *Body) Whole() bool { return b.whole }

// Len returns the size of the body's memory in bytes.
func (b *Body) Len() int { return cap(b.text) }

// Forget drops the memory.
func (b *Body) Forget() { b.text = nil }

// Shrink drops a body that is too long to keep.
func (b *Body) Shrink() {
	if cap(b.text) > maxKept {
		b.text = nil
	}
}

// Reset makes b ready for the next body, and reports whether its memory is short enough to be kept.
func (b *Body) Reset() (short bool) {
	if cap(b.text) > maxKept || cap(b.elements) > maxKeptElements {
		return false
	}
	clear(b.elements)
	b.whole, b.elements = false, b.elements[:0]
	return true
}

// Elements returns the elements of the array v. They are valid until the next call.
func (b *Body) Elements(v Value) []Value {
	b.elements = slices.AppendSeq(b.elements[:0], v.Elements())
	return b.elements
}

// ReadJSON reads the body of r as ReadText does, and returns it as one JSON value. Errors never quote it.
func (b *Body) ReadJSON(r *http.Request, most int64, share *memory.Share) (Value, error) {
	if !IsJSON(r.Header) {
		return "", ErrNotJSON
	}
	text, err := b.ReadText(r, most, share)
	if err != nil {
		return "", err
	}
	return Parse(text)
}

// ReadText reads the body of r, of at most most bytes, and returns it. It is valid until the next body is read. Its
// memory is charged to share. If there is no memory for it, the error is a CallError with nothing recorded.
func (b *Body) ReadText(r *http.Request, most int64, share *memory.Share) ([]byte, error) {
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	err := b.read(r.Body, int(most), share)
	switch {
	case errors.Is(err, ErrBusy):
		share.Release()
		return nil, &CallError{Recorded: count.RecordedNo, Err: err}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, ErrTooSlow
	case err != nil:
		return nil, &Error{Kind: ErrBody, Detail: "The body ended before it was whole."}
	case int64(len(b.text)) > most:
		return nil, tooLarge(most)
	}
	b.whole = true
	return b.text, nil
}

func tooLarge(most int64) error {
	return &Error{Kind: ErrTooLarge, Detail: "The body is longer than the " + itoa(most) + " bytes that this route takes."}
}

// read reads from body, up to one byte more than most. The error is ErrBusy if there is no memory for the bytes.
func (b *Body) read(body io.Reader, most int, share *memory.Share) error {
	room := memory.FreeBody
	for b.text = b.text[:0]; ; {
		if len(b.text) == room {
			if room = min(2*room, most+1); !share.Charge(room) {
				return ErrBusy
			}
		}
		if len(b.text) == cap(b.text) {
			b.text = append(make([]byte, 0, min(room, max(firstRead, 2*cap(b.text)))), b.text...)
		}
		n, err := body.Read(b.text[len(b.text):min(room, cap(b.text))])
		b.text = b.text[:len(b.text)+n]
		switch {
		case errors.Is(err, io.EOF) || err == nil && len(b.text) > most:
			return nil
		case err != nil:
			return err
		}
	}
}

// IsJSON reports whether h declares a body to be plain JSON in UTF-8.
func IsJSON(h http.Header) bool {
	if h.Get("Content-Encoding") != "" {
		return false
	}
	declared := h.Get("Content-Type")
	if declared == "application/json" {
		return true
	}
	media, params, err := mime.ParseMediaType(declared)
	charset, given := params["charset"]
	return err == nil && media == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}

// Parse returns the one JSON value that body is.
func Parse(body []byte) (Value, error) {
	v := Value(bytes.Trim(body, " \t\r\n"))
	mistake := func(detail string) error { return &Error{Kind: ErrBody, Detail: detail} }
	switch {
	case v == "":
		return "", mistake("The body is empty: send a JSON object.")
	case !utf8.Valid(body):
		return "", mistake("The body is not valid UTF-8.")
	case isWellFormed(v), json.Valid(body):
		return v, nil
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); !errors.As(err, &syntax) {
		return "", mistake("The body is not JSON.")
	}
	if err := noNumber(body, syntax.Offset); err != nil {
		return "", err
	}
	at := strconv.FormatInt(syntax.Offset, 10)
	if strings.Contains(syntax.Error(), "after top-level value") { // only its text distinguishes the two
		return "", mistake("There is more after the JSON value, at byte " + at + ".")
	}
	return "", mistake("The body is not JSON: it goes wrong at byte " + at + ".")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
