package storetest

import (
	"testing"
	"time"
	_ "time/tzdata" // for machines without a zone database

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Step is one request of a trace and its expected answer.
type Step struct {
	At      string // time of day
	Allowed bool
	Used    int64 // after the request
}

// Trace is a sequence of takes of cost 1 for one identifier.
type Trace struct {
	Name  string
	Limit policy.Limit
	Count policy.CountMode
	Steps []Step
	Whole []time.Duration // ResetAfter of each step; nil: not compared
}

// Policy returns the trace's policy.
func (tr *Trace) Policy() policy.Policy {
	return policy.Policy{Name: "trace", Limits: []policy.Limit{tr.Limit}, Count: tr.Count}
}

// Traces returns one trace for each algorithm and way of counting: limit 3 in 60 s, with the same instants for all but
// calendar windows.
func Traces() []Trace {
	limit := func(algorithm string, rounding policy.Rounding) policy.Limit {
		return policy.Limit{Algorithm: algorithm, Limit: 3, Window: time.Minute, Rounding: rounding}
	}
	buckets := limit("sliding-window", "")
	buckets.Buckets = 4
	return []Trace{
		{Name: "fixed-window", Limit: limit("fixed-window", ""), Count: policy.CountAdmitted, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 1}, {"12:01:10", true, 2},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 1},
		}},
		{Name: "fixed-window, count all", Limit: limit("fixed-window", ""), Count: policy.CountAll, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 1}, {"12:01:10", true, 2},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 1},
		}},
		{Name: "sliding-log", Limit: limit("sliding-log", ""), Count: policy.CountAdmitted, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 2},
		}},
		{Name: "sliding-log, count all", Limit: limit("sliding-log", ""), Count: policy.CountAll, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3},
		}},
		{Name: "concurrent", Limit: limit("concurrent", ""), Count: policy.CountAdmitted, Steps: []Step{ // no unit is released
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 2},
		}},
		{Name: "sliding-window", Limit: buckets, Count: policy.CountAdmitted, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 2},
		}},
		{Name: "sliding-window, count all", Limit: buckets, Count: policy.CountAll, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3},
		}},
		{Name: "sliding-tail", Limit: limit("sliding-tail", ""), Count: policy.CountAdmitted, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:02:20", true, 3},
		}},
		{Name: "sliding-tail, count all", Limit: limit("sliding-tail", ""), Count: policy.CountAll, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3},
		}},
		{Name: "sliding-tail, until the previous window has faded", Limit: limit("sliding-tail", ""), Count: policy.CountAll, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
			{"12:01:40", true, 3}, {"12:01:50", false, 4}, {"12:02:20", true, 3}, {"12:02:30.001", true, 3},
		}},
		{Name: "sliding-tail, rounding up", Limit: limit("sliding-tail", policy.RoundUp), Count: policy.CountAdmitted, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", false, 3},
			{"12:01:40", true, 3},
		}},
		{Name: "sliding-tail, rounding up, count all", Limit: limit("sliding-tail", policy.RoundUp), Count: policy.CountAll, Steps: []Step{
			{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 3}, {"12:01:10", false, 4},
			{"12:01:40", false, 4},
		}},
		bucketTrace(limit("leaky-bucket", "")),
		bucketTrace(limit("token-bucket", "")),
		conversionTrace(),
		calendarTrace(),
	}
}

// conversionTrace returns the trace of a conversion without confirmations, which lets a unit pass as a probe 12 s after
// the last.
func conversionTrace() Trace {
	limit := policy.Limit{Algorithm: "conversion", Limit: 3, Window: time.Minute, MinConversion: 20, Probe: 12 * time.Second}
	return Trace{Name: "conversion", Limit: limit, Count: policy.CountAdmitted, Steps: []Step{
		{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 2}, {"12:01:10", true, 3},
		{"12:01:40", true, 3}, {"12:01:50", false, 3}, {"12:01:52", true, 4}, {"12:02:20", true, 3},
	}}
}

// calendarTrace returns the trace of a quota of 3 a day in a zone whose midnight is at 11:00 UTC.
func calendarTrace() Trace {
	limit := policy.Limit{Algorithm: "fixed-window", Limit: 3, Calendar: policy.CalendarDay, Timezone: "Pacific/Auckland"}
	const day = 24 * time.Hour
	return Trace{Name: "fixed-window, by the calendar", Limit: limit, Count: policy.CountAdmitted, Steps: []Step{
		{"10:59:58", true, 1}, {"10:59:59.999", true, 2}, {"11:00:00", true, 1}, {"11:00:01", true, 2},
		{"12:00:00", true, 3}, {"12:00:01", false, 3},
	}, Whole: []time.Duration{
		2 * time.Second, time.Millisecond, day, day - time.Second, day - time.Hour, day - time.Hour - time.Second,
	}}
}

// bucketTrace returns the trace of a bucket of limit, empty at first. A unit takes 20 s to drain, so that reset_after
// shows its fill: 1, 1.5, 1, 1.55, 1.05, 1.55 and 1.05.
func bucketTrace(limit policy.Limit) Trace {
	return Trace{Name: limit.Algorithm, Limit: limit, Count: policy.CountAdmitted, Steps: []Step{
		{"12:00:05", true, 1}, {"12:00:15", true, 2}, {"12:01:01", true, 1}, {"12:01:10", true, 2},
		{"12:01:40", true, 2}, {"12:01:50", true, 2}, {"12:02:20", true, 2},
	}, Whole: []time.Duration{
		20 * time.Second, 30 * time.Second, 20 * time.Second, 31 * time.Second,
		21 * time.Second, 31 * time.Second, 21 * time.Second,
	}}
}

// Check fails the test unless d is the answer to step i of the trace.
func (tr *Trace) Check(t testing.TB, i int, d *count.Decision) {
	t.Helper()
	step := tr.Steps[i]
	if d.Allowed != step.Allowed || d.Used != step.Used || d.Remaining != max(0, tr.Limit.Limit-step.Used) {
		t.Errorf("%s: allowed %v, used %d, remaining %d, want %v, %d of %d",
			step.At, d.Allowed, d.Used, d.Remaining, step.Allowed, step.Used, tr.Limit.Limit)
	}
	if tr.Whole != nil && d.ResetAfter != tr.Whole[i] {
		t.Errorf("%s: ResetAfter %v, want %v", step.At, d.ResetAfter, tr.Whole[i])
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
