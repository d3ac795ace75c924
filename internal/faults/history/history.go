// Package history is the record of a run of the faults program: every call with its answer, and every fault of nodes
// and processes. It is kept as lines of JSON, so that it can be checked again.
//
// It does not judge them.
package history

import (
	"time"
)

// A History is one run. All times in it are since Header.Started, by the clock of the process that ran it, which is
// assumed to be true.
type History struct {
	Header Header
	Calls  []Call
	Faults []Fault
	Whole  []Span // when every node was up and seen up by all others
	Stalls []Span // when the machine ran no process, not even the test
	Clocks []ClockTest
	Owners *OwnersTest // nil: no connection between processes was cut for long
}

// Header has the settings of the run.
type Header struct {
	Seed         uint64
	Started      time.Time
	Lasts        time.Duration // of the load; faults end with it
	Processes    int
	Peers        bool            `json:",omitempty"` // each key has an owner, to which others hand on its calls
	Offsets      []time.Duration // of the processes' clocks, from the true one
	Tolerance    time.Duration   // of clocks
	StoreTimeout time.Duration
	Policies     []Policy
}

// Policy is a policy of one limit.
type Policy struct {
	Name      string
	Algorithm string
	Rows      bool `json:",omitempty"` // counting rows instead of counters
	Limit     int64
	Window    time.Duration
	Buckets   int   // of a sliding window, or blocks of a conversion
	Burst     int64 // of a token bucket

	Until         string        `json:",omitempty"` // confirmed: confirmed units no longer count
	MinConversion int           `json:",omitempty"` // of a conversion: percent of sent units that must be confirmed
	Probe         time.Duration `json:",omitempty"` // of a conversion: how long after the last unit one may pass

	// Kept means that the window is longer than the run and, except for a conversion, the limit larger than the demand:
	// all recorded units count in the end.
	Kept bool
	With string // the policy with which it always shares calls; empty: none
}

// Operations of a Call.
const (
	Take   = "take"
	Record = "record"
	Check  = "check"

	Confirm = "confirm" // confirms the units of the receipt of Of
	Refund  = "refund"  // refunds the units of the receipt of Of
)

// Call is one call as its client saw it.
type Call struct {
	N        int // from 1
	Of       int `json:",omitempty"` // the first call, which this one repeats, or whose reservation or receipt it sends; 0: none
	Process  int // that was asked
	Op       string
	Demands  []Demand
	Key      string        `json:",omitempty"` // of idempotency
	Reserve  time.Duration `json:",omitempty"` // how long a check holds its units
	Settles  bool          `json:",omitempty"` // it records the reservation of Of
	Cost     int64         `json:",omitempty"` // units at which it settles a reservation; 0: the held units
	Final    bool          `json:",omitempty"` // made at the end, to read the count
	Called   time.Duration
	Returned time.Duration
	Answer
}

// Ends reports whether c confirms or refunds units that were counted before.
func (c *Call) Ends() bool { return c.Op == Confirm || c.Op == Refund }

// Demand asks for one unit of a policy.
type Demand struct{ Policy, Identifier string }

// Values of Answer.Recorded.
const (
	Yes     = "yes"
	No      = "no"
	Unknown = "unknown"
)

// Answer is the answer to a call.
type Answer struct {
	Status   int     // of HTTP; 0: there was no answer
	Allowed  bool    `json:",omitempty"`
	Used     []int64 `json:",omitempty"` // of each demand
	Recorded string  // yes, no, unknown
	Replayed bool    `json:",omitempty"`
	Receipt  string  `json:",omitempty"`
	Error    string  `json:",omitempty"` // where there was no answer
}

// Decided reports whether the call was decided. A 404 refuses a receipt.
func (a *Answer) Decided() bool { return a.Status == 200 || a.Status == 429 || a.Status == 404 }

// Kinds of Fault.
const (
	NodeKill      = "node killed"
	NodePause     = "node paused"
	NodeSlow      = "node slow"
	MajorityPause = "majority paused"
	ProcessKill   = "process killed"
	ProcessStop   = "process stopped"
	ProcessPause  = "process paused"
	ProcessSlow   = "process slow"
	PeersCut      = "peers cut off" // connections to a process are refused; its own work, and all reach the nodes
	PeersHeld     = "peers held up" // connections to a process are stalled until it is over
)

// Kinds lists all kinds of Fault, in the order of reports.
func Kinds() []string {
	return []string{
		NodeKill, NodePause, NodeSlow, MajorityPause, ProcessKill, ProcessStop, ProcessPause, ProcessSlow, PeersCut, PeersHeld,
	}
}

// OfPeers reports whether kind is a fault of connections between processes.
func OfPeers(kind string) bool { return kind == PeersCut || kind == PeersHeld }

// StandsStill reports whether requests to a process may arrive only after a fault of that kind.
func StandsStill(kind string) bool {
	return kind == ProcessPause || kind == ProcessSlow || kind == PeersHeld
}

// OfNodes reports whether kind is a fault of nodes and not of processes.
func OfNodes(kind string) bool {
	return kind == NodeKill || kind == NodePause || kind == NodeSlow || kind == MajorityPause
}

// Fault is a fault of one node or process, or of two nodes for a majority.
type Fault struct {
	Kind   string
	Target int
	Span                 // until it was undone: the process serves again, the node is seen up by the others
	Ends   time.Duration `json:",omitempty"` // when a killed node or process was started again
}

// Span is a period of time, including both ends.
type Span struct{ From, Until time.Duration }

// Meets reports whether s and another span have an instant in common.
func (s Span) Meets(o Span) bool { return s.From <= o.Until && o.From <= s.Until }

// Overlap returns how long s and another span last together.
func (s Span) Overlap(o Span) time.Duration {
	return max(0, min(s.Until, o.Until)-max(s.From, o.From))
}

// ClockTest is the behaviour of a process whose clock was changed beyond the tolerance, and back.
type ClockTest struct {
	Beyond  string        // --clock-beyond-tolerance
	Ahead   time.Duration // how far the clock was set ahead; below 0: behind
	Noticed time.Duration // until readyz was 503 and calls were refused; under warn 0
	Back    time.Duration // from the clock's return until readyz was 200 and calls were decided
	Wrong   string        `json:",omitempty"` // the broken promise; empty: none
}

// OwnersTest is the behaviour of processes after the last long cut between them.
type OwnersTest struct {
	After time.Duration // time from the end of the cut until each key had an owner again
	Wrong string        `json:",omitempty"` // the broken promise; empty: none
}

// Policy returns the policy with that name, or nil.
func (h *Header) Policy(name string) *Policy {
	for i := range h.Policies {
		if h.Policies[i].Name == name {
			return &h.Policies[i]
		}
	}
	return nil
}

// Capacity returns how many units a policy can hold at once.
func (p *Policy) Capacity() int64 {
	if p.Burst > 0 {
		return p.Burst
	}
	return p.Limit
}

// Converts reports whether p depends on the share of sent units that is confirmed.
func (p *Policy) Converts() bool { return p.Algorithm == "conversion" }

// Confirms reports whether p depends on confirmations.
func (p *Policy) Confirms() bool { return p.Converts() || p.Until != "" }

// Releases reports whether units of p count until they are released.
func (p *Policy) Releases() bool { return p.Algorithm == "concurrent" }

// IsLog reports whether p keeps an event for each unit.
func (p *Policy) IsLog() bool { return p.Algorithm == "sliding-log" || p.Releases() }

// Denies reports whether a conversion denies one more unit after this many sent and confirmed ones, probes aside.
func (p *Policy) Denies(sent, confirmed int64) bool {
	return sent >= p.Limit && confirmed*100 < int64(p.MinConversion)*sent
}

// InBucket reports whether p counts in a leaky or a token bucket.
func (p *Policy) InBucket() bool {
	return p.Algorithm == "leaky-bucket" || p.Algorithm == "token-bucket"
}
