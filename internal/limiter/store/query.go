package store

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Span is the class of a log's window. A store may keep the classes apart, so that rows of similar age are together. A
// key has a log of its own in each span.
type Span int

// The spans, by the longest window that belongs to each.
const (
	SpanHour  Span = iota // up to 1 hour
	SpanDay               // up to 1 day
	SpanMonth             // up to policy.MaxWindow
	SpanCount             // number of spans
)

// SpanOf returns the span of a log with this window.
func SpanOf(window time.Duration) Span {
	switch {
	case window <= time.Hour:
		return SpanHour
	case window <= 24*time.Hour:
		return SpanDay
	}
	return SpanMonth
}

// Query asks for the state of one key. Parts that it does not name are neither read nor returned.
type Query struct {
	Key    Key
	Level  policy.Level
	Logs   []LogQuery
	Counts bool // all counters of the key that expire after ExpireAfter
	Tally  bool // all running totals of the key in Span that expire after ExpireAfter
	Span   Span
	Cell   bool // the key's cell; outside of an Update, nothing else is then asked for

	ExpireAfter Instant
}

// LogQuery asks for the newest Max events of one span that are later than After, those later than now included. Holds
// are returned beyond Max: one that has ended may remain for a while, and must not hide an event that counts.
type LogQuery struct {
	Span  Span
	After Instant
	Max   int
}
