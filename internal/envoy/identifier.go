package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

const (
	// noValue is the identifier of a single empty value: an empty header must not be a way around a limit.
	noValue = "%empty"
	// longPrefix precedes the hash of a text that is too long for an identifier. No escaped text begins with it.
	longPrefix = "%sha256/"
)

// identifier returns the identifier of a descriptor with these entries: domain, keys and values as
// "domain/key=value/key=value", or the parts that the rule names. Descriptors that the rule distinguishes have
// different identifiers.
func (r *rule) identifier(entries []*pb.RateLimitDescriptor_Entry) keys.Identifier {
	if len(r.identify) == 1 {
		return bounded(r.value(entries, r.identify[0]))
	}
	var memory [256]byte
	b := memory[:0]
	if r.keyed {
		b = append(b, r.domain.escaped...)
		for i := range entries {
			b = r.appendEntry(append(b, '/'), entries, i)
		}
		return bounded(string(b))
	}
	for n, i := range r.identify {
		if n > 0 {
			b = append(b, '/')
		}
		b = r.appendEntry(b, entries, i)
	}
	return bounded(string(b))
}

func (r *rule) appendEntry(b []byte, entries []*pb.RateLimitDescriptor_Entry, i int) []byte {
	b = append(append(b, r.escapedBy[i]...), '=')
	return append(b, escapes.Replace(r.value(entries, i))...)
}

// remoteAddress is the key of the entry in which Envoy sends the client's address.
const remoteAddress = "remote_address"

// value returns the value of entry i, or its replacement. A client's address becomes the same caller as over HTTP.
func (r *rule) value(entries []*pb.RateLimitDescriptor_Entry, i int) string {
	switch value := entries[i].GetValue(); {
	case r.standIns != nil && r.standIns[i] != "":
		return r.standIns[i]
	case entries[i].GetKey() == remoteAddress:
		return origin.CallerOf(value)
	default:
		return value
	}
}

// bounded returns text as an identifier of a permitted length.
func bounded(text string) keys.Identifier {
	switch {
	case text == "":
		return noValue
	case len(text) > keys.MaxIdentifierLen:
		sum := sha256.Sum256([]byte(text))
		return keys.Identifier(longPrefix + hex.EncodeToString(sum[:]))
	}
	return keys.Identifier(text)
}

// escapes writes the bytes that separate the parts of identifiers, and the escape, as %XX.
var escapes = strings.NewReplacer("%", "%25", "/", "%2F", "=", "%3D")
