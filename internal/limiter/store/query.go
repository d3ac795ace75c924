package store

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Span is a class of windows by their length. A key has a log of its own in each span, so that a store can keep rows with
// similar lives together.
type Span int

// The spans, each with the longest window that belongs to it.
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

// Query asks for the state of one key. Only the parts that it names are read and returned.
type Query struct {
	Key    Key
	Level  policy.Level
	Logs   []LogQuery
	Counts bool // all counters of the key that expire after ExpireAfter
	Tally  bool // all running totals of the key in Span that expire after ExpireAfter
	Span   Span
	Cell   bool // the key's cell; outside of an Update, such a query names nothing else

	ExpireAfter Instant
}

// LogQuery asks for the newest Max events of one span that are later than After, including those later than now. Holds are
// returned beyond Max: a hold that has ended may remain for a while, and must not displace an event that counts.
type LogQuery struct {
	Span  Span
	After Instant
	Max   int
}
