package client

import (
	"math"
	"net/http"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/jsonscan"
)

// decoder reads the bodies of answers.
type decoder struct{ *jsonscan.Scanner }

// answer is the service's answer to one call: a decision, a confirmation or a problem.
type answer struct {
	index    int // of its operation, if the answer is a line
	status   int
	decision Decision
	problem  Problem // set if the answer is one

	decided      bool // it has "allowed"
	confirmed    bool // it has "confirmed", which is false if no limit depends on confirmations
	verdictGiven bool // it has "would_allow"
	// Members of problems and denials, in the memory of the body.
	kind, title, detail, field []byte
}

// maxAnswerMS is the largest number of milliseconds in a time.Duration.
const maxAnswerMS = math.MaxInt64 / int64(time.Millisecond)

// readAnswer reads the body of an answer to one call.
func (s decoder) readAnswer(status int, a *answer) error {
	a.status = status
	s.readMembers(a)
	s.End()
	s.settle(a, status)
	return s.Err()
}

// readResults reads the body of a batch's answer into the answers that at returns, one for each of n operations.
func (s decoder) readResults(n int, at func(int) *answer) error {
	found := false
	s.Object(func(name []byte) {
		if string(name) != "results" || found {
			s.Skip()
			return
		}
		found = true
		s.readResultList(n, at)
	})
	s.End()
	if !found {
		s.Fail()
	}
	return s.Err()
}

func (s decoder) readResultList(n int, at func(int) *answer) {
	i := 0
	s.Array(func() {
		if i == n {
			s.Fail()
			return
		}
		a := at(i)
		s.readMembers(a)
		s.settle(a, a.status)
		i++
	})
	if i != n {
		s.Fail()
	}
}

// readLine reads a line of a batch's answer.
func (s decoder) readLine(a *answer) error {
	a.index = -1
	s.readMembers(a)
	s.End()
	s.settle(a, a.status)
	return s.Err()
}

// settle interprets the members of a, and fails if they contradict each other.
func (s decoder) settle(a *answer, status int) {
	d := &a.decision
	switch {
	case s.Err() != nil:
	case a.status != status:
		s.Fail()
	case status == http.StatusOK && a.decided && d.Allowed, status == http.StatusTooManyRequests && a.decided && !d.Allowed:
		if !a.verdictGiven {
			d.WouldAllow = d.Allowed
		}
	case status == http.StatusOK && a.confirmed && !a.decided:
	case status >= http.StatusBadRequest && status != http.StatusTooManyRequests && a.detail != nil:
		a.decided, a.confirmed = false, false
		a.problem = Problem{
			Type: string(a.kind), Title: string(a.title), Status: status, Field: string(a.field), Detail: string(a.detail),
			Recorded: d.Recorded,
		}
	default:
		s.Fail()
	}
	a.kind, a.title, a.detail, a.field = nil, nil, nil, nil // the body's memory is reused
}

// readMembers reads an object of an answer.
func (s decoder) readMembers(a *answer) {
	s.Object(func(name []byte) {
		d := &a.decision
		switch string(name) {
		case "index":
			a.index = int(s.Integer())
		case "status":
			a.status = int(s.Integer())
		case "type":
			a.kind = s.Text()
		case "title":
			a.title = s.Text()
		case "detail":
			a.detail = s.Text()
		case "field":
			a.field = s.Text()
		case "receipt":
			d.Receipt = string(s.Text())
		case "release":
			d.Release = string(s.Text())
		case "reservation":
			d.Reservation = string(s.Text())
		case "confirmed":
			_ = s.Boolean()
			a.confirmed = true
		case "replayed":
			d.Replayed = s.Boolean()
		case "demands":
			d.Demands = s.readDemands()
		default:
			s.readDecisionMember(name, d, &a.decided, &a.verdictGiven)
		}
	})
}

// readDemands reads the decisions of the demands.
func (s decoder) readDemands() (list []Decision) {
	s.Array(func() {
		var d Decision
		var decided, verdictGiven bool
		s.Object(func(name []byte) { s.readDecisionMember(name, &d, &decided, &verdictGiven) })
		if !verdictGiven {
			d.WouldAllow = d.Allowed
		}
		if !decided {
			s.Fail()
		}
		list = append(list, d)
	})
	return list
}

// readDecisionMember reads the value of the member called name into d. It skips an unknown member.
func (s decoder) readDecisionMember(name []byte, d *Decision, decided, verdictGiven *bool) {
	switch string(name) {
	case "allowed":
		d.Allowed, *decided = s.Boolean(), true
	case "policy":
		d.Policy = s.Name()
	case "limit":
		d.Limit = s.Integer()
	case "remaining":
		d.Remaining = s.Integer()
	case "used":
		d.Used = s.Integer()
	case "settled":
		d.Settled = s.Integer()
	case "over":
		d.Over = s.Integer()
	case "reset_after_ms":
		d.ResetAfter = s.milliseconds()
	case "retry_after_ms":
		d.RetryAfter = s.wait()
	case "limits":
		d.Limits = s.readLimits()
	case "mode":
		d.Mode = Mode(s.Name())
	case "would_allow":
		d.WouldAllow, *verdictGiven = s.Boolean(), true
	case "override":
		d.Override = Override(s.Name())
	case "blocked":
		d.Blocked = s.Boolean()
	case "reason":
		d.Reason = Reason(s.Name())
	case "degraded":
		d.Degraded = s.Boolean()
	case "recorded":
		d.Recorded = Recorded(s.Name())
	default:
		s.Skip()
	}
}

func (s decoder) readLimits() []LimitDecision {
	list := make([]LimitDecision, 0, 1)
	s.Array(func() {
		list = append(list, LimitDecision{})
		l := &list[len(list)-1]
		s.Object(func(name []byte) { s.readLimitMember(name, l) })
	})
	return list
}

func (s decoder) readLimitMember(name []byte, l *LimitDecision) {
	switch string(name) {
	case "name":
		l.Name = s.Name()
	case "algorithm":
		l.Algorithm = s.Name()
	case "limit":
		l.Limit = s.Integer()
	case "window_ms":
		l.Window = s.milliseconds()
	case "allowed":
		l.Allowed = s.Boolean()
	case "used":
		l.Used = s.Integer()
	case "remaining":
		l.Remaining = s.Integer()
	case "reset_after_ms":
		l.ResetAfter = s.milliseconds()
	case "retry_after_ms":
		l.RetryAfter = s.wait()
	case "would_deny":
		l.Shadow, l.WouldDeny = true, s.Boolean()
	default:
		s.Skip()
	}
}

// wait returns the next value, a time: Never for null.
func (s decoder) wait() time.Duration {
	if s.Null() {
		return Never
	}
	return s.milliseconds()
}

func (s decoder) milliseconds() time.Duration {
	ms := s.Integer()
	if ms < 0 || ms > maxAnswerMS {
		s.Fail()
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// readProblem returns the problem in body, false if body has none.
func readProblem(status int, body []byte) (Problem, bool) {
	a := answer{}
	s := decoder{jsonscan.New(body, nil)}
	if s.readAnswer(status, &a) != nil || a.decided {
		return Problem{}, false
	}
	return a.problem, true
}
