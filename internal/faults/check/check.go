// Package check compares the history of a run with the promises of docs/guarantees.md. The same history gives the same
// findings, except for buckets that could not be decided in time.
//
// It knows the service from that page, not from its code: it defines each algorithm anew, over times that are known to
// within the tolerance.
package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Bounds of promises without a number, generous because the machines that run this are busy.
const (
	// answerAllowance is how much longer than the store timeout an answer may take.
	answerAllowance = 4 * time.Second
	// recoveryBound is how long calls may still fail after all nodes are up.
	recoveryBound = 30 * time.Second
	// cutBound is how long calls may fail after processes are cut off from each other.
	cutBound = 8 * time.Second
	// lateness is how long after its client gave up a call's units may still be dated.
	lateness = 15 * time.Second
	// leastDecided is the share of calls that must be decided for a run to be meaningful.
	leastDecided = 0.25
	// coarseness is more than the error of times that are truncated to milliseconds.
	coarseness = 5 * time.Millisecond
)

// Checks that can report a violation.
const (
	CheckLimit    = "limit"       // more was admitted than the limit
	CheckSerial   = "serial"      // a bucket's history is not linearizable
	CheckLost     = "lost"        // acknowledged units are missing
	CheckDouble   = "double"      // more units are counted than were asked for
	CheckOnce     = "once"        // a receipt had an effect twice, or none
	CheckHalf     = "half"        // one of two demands counts and the other does not
	CheckDenied   = "denied"      // denied though there was room: too often, or where that is never allowed
	CheckLate     = "late"        // an answer after its deadline
	CheckRecovery = "recovery"    // the service did not recover
	CheckClock    = "clock"       // wrong behaviour with a clock beyond the tolerance
	CheckCut      = "cut"         // wrong behaviour while processes do not reach each other
	CheckAnswer   = "answer"      // an answer that is never allowed
	CheckEmpty    = "nothing run" // too few calls for any conclusion
)

// Violation is a broken promise.
type Violation struct {
	Check string
	Where string         // policy and identifier; empty: all
	What  string         // a sentence
	Calls []history.Call // the calls that show it
}

// String returns the violation with one call per line.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s", v.Check, v.Where, v.What)
	for i := range v.Calls {
		fmt.Fprintf(&b, "\n\t%s", Tell(&v.Calls[i]))
	}
	return b.String()
}

// Tell describes a call on a line.
func Tell(c *history.Call) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%10.3f–%-10.3f s call %d to process %d: %s", c.Called.Seconds(), c.Returned.Seconds(), c.N, c.Process, c.Op)
	for _, d := range c.Demands {
		fmt.Fprintf(&b, " %s/%s", d.Policy, d.Identifier)
	}
	if c.Key != "" {
		fmt.Fprintf(&b, " key %s", c.Key)
	}
	if c.Reserve > 0 {
		fmt.Fprintf(&b, " reserve %v", c.Reserve)
	}
	if c.Of > 0 {
		fmt.Fprintf(&b, " (of call %d)", c.Of)
	}
	fmt.Fprintf(&b, " → %d, recorded %s, used %d %s", c.Status, c.Recorded, c.Used, c.Error)
	return b.String()
}

// Findings are the results of checking a history.
type Findings struct {
	Calls    int
	Admitted int
	Denied   int
	Unknown  int // of unknown outcome: 503 or no answer
	Failed   int // that certainly recorded nothing: 503 or no connection
	Ended    int // confirmations and refunds with an answer

	Keys      int // whose limits were checked
	Serial    int // buckets whose histories are linearizable
	Undecided int // buckets for which that could not be decided in time
	Kept      int // keys whose counts were compared in the end

	WronglyDenied map[string]int // denials although there was room, by kind of policy
	DeniedOf      map[string]int // all denials of that kind

	Slowest  time.Duration // answer, less the time that its process or the machine was frozen
	Recovery time.Duration // the longest, from when all nodes were up until calls were decided again
	Cuts     int           // cuts between processes that were long enough to judge
	Cut      time.Duration // the longest, from when processes were cut off from each other until calls were decided again

	Violations []Violation
}

func (f *Findings) add(v Violation) { f.Violations = append(f.Violations, v) }

// Of returns the number of violations that a check has found.
func (f *Findings) Of(check string) (n int) {
	for i := range f.Violations {
		if f.Violations[i].Check == check {
			n++
		}
	}
	return n
}

// History runs all checks on h.
func History(h *history.History) *Findings {
	f := &Findings{WronglyDenied: make(map[string]int), DeniedOf: make(map[string]int)}
	c := &checker{h: h, f: f, blur: h.Header.Tolerance + coarseness}
	c.answers()
	keys := c.keys()
	f.Keys = len(keys)
	for _, k := range keys {
		c.limit(k)
		c.denials(k)
		c.receipts(k)
		if k.policy.InBucket() && !k.policy.Kept {
			c.serial(k)
		}
		if k.policy.Kept {
			c.kept(k)
		}
	}
	c.pairs(keys)
	c.deniedTooOften()
	c.recoveries()
	c.cuts()
	c.clocks()
	c.enough()
	return f
}

// enough reports a violation if hardly any call was decided.
func (c *checker) enough() {
	decided := c.f.Admitted + c.f.Denied
	if c.f.Admitted == 0 || c.f.Denied == 0 || float64(decided) < leastDecided*float64(c.f.Calls) {
		c.f.add(Violation{Check: CheckEmpty, What: fmt.Sprintf("%d admitted, %d denied, %d unknown, %d failed: too few calls for a verdict",
			c.f.Admitted, c.f.Denied, c.f.Unknown, c.f.Failed)})
	}
}

func (c *checker) clocks() {
	for _, t := range c.h.Clocks {
		if t.Wrong != "" {
			c.f.add(Violation{Check: CheckClock, What: fmt.Sprintf("a clock put off by %v, under %s: %s", t.Ahead, t.Beyond, t.Wrong)})
		}
	}
}
