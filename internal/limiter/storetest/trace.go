package storetest

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Step is one request of a trace and what the answer must be.
type Step struct {
	At      string // time of day
	Allowed bool
	Used    int64 // after the request
}

// Trace is a sequence of takes of cost 1 for one identifier.
type Trace struct {
	Name  string
	Limit limiter.Limit
	Count limiter.CountMode
	Steps []Step
}

// Policy returns the trace's policy.
func (tr *Trace) Policy() limiter.Policy {
	return limiter.Policy{Name: "trace", Limits: []limiter.Limit{tr.Limit}, Count: tr.Count}
}

// Traces returns one trace for each algorithm and way of counting: limit 3 in 60 s,
// the same instants for all.
func Traces() []Trace {
	limit := func(algorithm string, rounding limiter.Rounding) limiter.Limit {
		return limiter.Limit{Algorithm: algorithm, Limit: 3, Window: time.Minute, Rounding: rounding}
	}
	buckets := limit("sliding-window", "")
	buckets.Buckets = 4
	return []Trace{
		{"fixed-window", limit("fixed-window", ""), limiter.CountAdmitted, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 1}, {"12:01:10", true, 2},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 1},
		}},
		{"fixed-window, count all", limit("fixed-window", ""), limiter.CountAll, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 1}, {"12:01:10", true, 2},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 1},
		}},
		{"sliding-log", limit("sliding-log", ""), limiter.CountAdmitted, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 2},
		}},
		{"sliding-log, count all", limit("sliding-log", ""), limiter.CountAll, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3},
		}},
		{"sliding-window", buckets, limiter.CountAdmitted, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 2},
		}},
		{"sliding-window, count all", buckets, limiter.CountAll, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3},
		}},
		{"sliding-tail", limit("sliding-tail", ""), limiter.CountAdmitted, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 3},
		}},
		{"sliding-tail, count all", limit("sliding-tail", ""), limiter.CountAll, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3},
		}},
		{"sliding-tail, until the previous window has faded", limit("sliding-tail", ""), limiter.CountAll, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3}, {"12:02:30.001", true, 3},
		}},
		{"sliding-tail, rounding up", limit("sliding-tail", limiter.RoundUp), limiter.CountAdmitted, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", false, 3},
			{"12:01:40", true, 3},
		}},
		{"sliding-tail, rounding up, count all", limit("sliding-tail", limiter.RoundUp), limiter.CountAll, []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", false, 4},
			{"12:01:40", false, 4},
		}},
	}
}

// Clock returns the instant of a step: a time of day on a fixed date.
func Clock(t testing.TB, at string) time.Time {
	t.Helper()
	clock, err := time.Parse(time.DateTime, "2026-03-02 "+at)
	if err != nil {
		t.Fatal(err)
	}
	return clock
}
