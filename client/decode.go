package client

import (
	"math"
	"net/http"
	"time"
)

// answer is what the service says to one call: a decision, or a problem.
type answer struct {
	index    int // of its operation, in a line
	status   int
	decision Decision
	problem  Problem // filled in where it is one

	decided      bool // "allowed" was there
	verdictGiven bool // "would_allow" was
	// What problems and denials have, as parts of the body that is read.
	kind, title, detail, field []byte
}

// maxAnswerMS keeps milliseconds within a time.Duration.
const maxAnswerMS = math.MaxInt64 / int64(time.Millisecond)

// readAnswer reads the body of an answer to one call.
func (s *scanner) readAnswer(status int, a *answer) error {
	a.status = status
	s.readMembers(a)
	s.end()
	s.settle(a, status)
	return s.err
}

// readResults reads the body of a batch's answer, with a result for each of n operations,
// which at tells.
func (s *scanner) readResults(n int, at func(int) *answer) error {
	found := false
	s.object(func(name []byte) {
		if string(name) != "results" || found {
			s.skip()
			return
		}
		found = true
		s.readResultList(n, at)
	})
	s.end()
	if !found {
		s.fail()
	}
	return s.err
}

func (s *scanner) readResultList(n int, at func(int) *answer) {
	i := 0
	s.expect('[')
	for ; s.err == nil && s.next(']', i == 0); i++ {
		if i == n {
			s.fail()
			return
		}
		a := at(i)
		s.readMembers(a)
		s.settle(a, a.status)
	}
	if i != n {
		s.fail()
	}
}

// readLine reads a line of a batch's answer, of which index tells the operation.
func (s *scanner) readLine(a *answer) error {
	a.index = -1
	s.readMembers(a)
	s.end()
	s.settle(a, a.status)
	return s.err
}

// settle makes of a what its members say, and refuses what contradicts itself.
func (s *scanner) settle(a *answer, status int) {
	d := &a.decision
	switch {
	case s.err != nil:
	case a.status != status:
		s.fail()
	case status == http.StatusOK && a.decided && d.Allowed, status == http.StatusTooManyRequests && a.decided && !d.Allowed:
		if !a.verdictGiven {
			d.WouldAllow = d.Allowed
		}
	case status >= http.StatusBadRequest && status != http.StatusTooManyRequests && a.detail != nil:
		a.decided = false
		a.problem = Problem{
			Type: string(a.kind), Title: string(a.title), Status: status, Field: string(a.field), Detail: string(a.detail),
			Recorded: d.Recorded,
		}
	default:
		s.fail()
	}
	a.kind, a.title, a.detail, a.field = nil, nil, nil, nil // of a body that others get
}

// readMembers reads an object of an answer.
func (s *scanner) readMembers(a *answer) {
	s.object(func(name []byte) {
		d := &a.decision
		switch string(name) {
		case "index":
			a.index = int(s.integer())
		case "status":
			a.status = int(s.integer())
		case "type":
			a.kind = s.text()
		case "title":
			a.title = s.text()
		case "detail":
			a.detail = s.text()
		case "field":
			a.field = s.text()
		case "receipt":
			d.Receipt = string(s.text())
		case "reservation":
			d.Reservation = string(s.text())
		case "replayed":
			d.Replayed = s.boolean()
		case "demands":
			d.Demands = s.readDemands()
		default:
			s.readDecisionMember(name, d, &a.decided, &a.verdictGiven)
		}
	})
}

// readDemands reads the decisions of single demands.
func (s *scanner) readDemands() (list []Decision) {
	s.expect('[')
	for first := true; s.err == nil && s.next(']', first); first = false {
		var d Decision
		var decided, verdictGiven bool
		s.object(func(name []byte) { s.readDecisionMember(name, &d, &decided, &verdictGiven) })
		if !verdictGiven {
			d.WouldAllow = d.Allowed
		}
		if !decided {
			s.fail()
		}
		list = append(list, d)
	}
	return list
}

// readDecisionMember reads the value of the member of that name into d, and goes past one
// that it does not know.
func (s *scanner) readDecisionMember(name []byte, d *Decision, decided, verdictGiven *bool) {
	switch string(name) {
	case "allowed":
		d.Allowed, *decided = s.boolean(), true
	case "policy":
		d.Policy = s.name()
	case "limit":
		d.Limit = s.integer()
	case "remaining":
		d.Remaining = s.integer()
	case "used":
		d.Used = s.integer()
	case "reset_after_ms":
		d.ResetAfter = s.milliseconds()
	case "retry_after_ms":
		d.RetryAfter = s.wait()
	case "limits":
		d.Limits = s.readLimits()
	case "mode":
		d.Mode = Mode(s.name())
	case "would_allow":
		d.WouldAllow, *verdictGiven = s.boolean(), true
	case "override":
		d.Override = Override(s.name())
	case "blocked":
		d.Blocked = s.boolean()
	case "degraded":
		d.Degraded = s.boolean()
	case "recorded":
		d.Recorded = Recorded(s.name())
	default:
		s.skip()
	}
}

func (s *scanner) readLimits() []LimitDecision {
	list := make([]LimitDecision, 0, 1)
	s.expect('[')
	for s.err == nil && s.next(']', len(list) == 0) {
		list = append(list, LimitDecision{})
		l := &list[len(list)-1]
		s.object(func(name []byte) { s.readLimitMember(name, l) })
	}
	return list
}

func (s *scanner) readLimitMember(name []byte, l *LimitDecision) {
	switch string(name) {
	case "name":
		l.Name = s.name()
	case "algorithm":
		l.Algorithm = s.name()
	case "limit":
		l.Limit = s.integer()
	case "window_ms":
		l.Window = s.milliseconds()
	case "allowed":
		l.Allowed = s.boolean()
	case "used":
		l.Used = s.integer()
	case "remaining":
		l.Remaining = s.integer()
	case "reset_after_ms":
		l.ResetAfter = s.milliseconds()
	case "retry_after_ms":
		l.RetryAfter = s.wait()
	default:
		s.skip()
	}
}

// wait returns the time that is next: Never for null.
func (s *scanner) wait() time.Duration {
	if s.literal("null") {
		return Never
	}
	return s.milliseconds()
}

func (s *scanner) milliseconds() time.Duration {
	ms := s.integer()
	if ms < 0 || ms > maxAnswerMS {
		s.fail()
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// readProblem returns the problem that body is; false if it is none.
func readProblem(status int, body []byte) (Problem, bool) {
	a := answer{}
	s := scanner{b: body}
	if s.readAnswer(status, &a) != nil || a.decided {
		return Problem{}, false
	}
	return a.problem, true
}
