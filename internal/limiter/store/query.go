package store

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Span is the class of a log's window. A store may keep the classes apart so that
// rows of like age lie together; the events of a key under different spans are
// different logs.
type Span int

// The spans, by the longest window that belongs to each.
const (
	SpanHour  Span = iota // up to 1 hour
	SpanDay               // up to 1 day
	SpanMonth             // up to policy.MaxWindow
	SpanCount             // how many spans there are
)

// SpanOf returns the span that a log of this window belongs to.
func SpanOf(window time.Duration) Span {
	switch {
	case window <= time.Hour:
		return SpanHour
	case window <= 24*time.Hour:
		return SpanDay
	}
	return SpanMonth
}

// Query asks for the state of one key. Memory that it does not name is neither
// read nor returned.
type Query struct {
	Key    Key
	Level  policy.Level
	Logs   []LogQuery
	Counts bool // all counters of the key that expire after ExpireAfter
	Tally  bool // all running totals of the key in Span that expire after ExpireAfter
	Span   Span
	Cell   bool // the key's cell; Logs are then those beside it, of which there is one

	ExpireAfter Instant
}

// LogQuery asks for the newest Max events of one span that are later than After,
// with no bound on how late. Holds come on top of those: one that has ended may be
// there for a while, and must not hide an event that counts.
type LogQuery struct {
	Span  Span
	After Instant
	Max   int
}
