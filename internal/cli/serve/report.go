package serve

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

// peersAnswerWithin is the timeout of a report from another instance, which has it in memory.
const peersAnswerWithin = time.Second

// question is a request of an instance for a report of another one.
type question struct {
	About    string
	Policy   string   `json:",omitempty"` // of reports of one policy
	Policies []string `json:",omitempty"` // of reports of several
	All      bool     `json:",omitempty"` // of reports of all
}

// shows reports whether q asks for a policy among others.
func (q *question) shows(policy string) bool { return q.All || slices.Contains(q.Policies, policy) }

// The reports that can be asked for.
const (
	aboutShadow    = "shadow"    // a shadow.Report
	aboutOvershoot = "overshoot" // an overshoot.Report
	aboutState     = "state"     // a ui.Report
	aboutHistory   = "history"   // a ui.History
)

// report answers a question of another instance; the answer is empty if this one has no such report.
func (s *service) report(text []byte) []byte {
	var q question
	if json.Unmarshal(text, &q) != nil {
		return nil
	}
	var told any
	known := false
	switch q.About {
	case aboutShadow:
		told, known = s.shadows.Report(q.Policy)
	case aboutOvershoot:
		told, known = s.measured.Overshoot(q.Policy, overshootKept)
	case aboutState:
		if known = s.ui != nil; known {
			told = s.ui.Report()
		}
	case aboutHistory:
		if known = s.ui != nil; known {
			told = s.ui.History(q.shows)
		}
	}
	if !known {
		return nil
	}
	answer, err := json.Marshal(told)
	if err != nil {
		s.log.Warn("a report can't be told to a peer", "about", q.About, "policy", q.Policy, "error", err)
	}
	return answer
}

// asked are the instances that a report covers.
type asked struct {
	here   bool // this one
	others []cluster.Member
}

// scope returns the scope of an answer about a.
func (a *asked) scope() string {
	if a.here && len(a.others) > 0 {
		return encode.ScopeInstances
	}
	return encode.ScopeInstance
}

// whom returns the instance with this id, beginning of an id, or address; all instances if it is empty.
func (s *service) whom(instance string) (asked, error) {
	all := []cluster.Member{s.self()}
	if s.peers.cluster != nil {
		view := s.peers.cluster.Status()
		for _, m := range view.View.Members {
			if m.ID != view.Self {
				all = append(all, m)
			}
		}
	}
	if instance == "" {
		return asked{true, all[1:]}, nil
	}
	such := func(m cluster.Member) bool { return m.Address == instance || strings.HasPrefix(string(m.ID), instance) }
	i := slices.IndexFunc(all, such)
	if i < 0 || slices.ContainsFunc(all[i+1:], such) {
		ids := make([]string, len(all))
		for j, m := range all {
			ids[j] = string(m.ID)
		}
		return asked{}, api.UnknownInstance(ids)
	}
	if i == 0 {
		return asked{here: true}, nil
	}
	return asked{others: all[i : i+1]}, nil
}

// self returns this instance.
func (s *service) self() cluster.Member {
	return cluster.Member{ID: cluster.ID(s.instanceName()), Address: s.peers.address}
}

// instanceName returns the id of this instance among its peers, or else its own name.
func (s *service) instanceName() string {
	if s.peers.cluster != nil {
		if self := s.peers.cluster.Self(); self != "" {
			return string(self)
		}
	}
	return s.name()
}

// told is the report of an instance.
type told[T any] struct {
	member cluster.Member
	report T
}

// unanswered returns the entry of an instance whose report is missing.
func unanswered(m *cluster.Member, reason error) encode.Unanswered {
	return encode.Unanswered{Instance: string(m.ID), Address: m.Address, Reason: reason.Error()}
}

// Reasons why the report of an instance is missing.
var (
	errNoAddress = errors.New("it has no address: it was given no --peer-listen")
	errNoAnswer  = errors.New("it did not answer")
	errEarlier   = errors.New("it is of another release, which counts differently")
	errNoReport  = errors.New("it counts nothing of that")
)

// reportsOf returns the reports of the instances that whom covers: own is that of this one, and comes first; the others
// are asked q, all at once. missing are the others without a report. none is the reason of one that has no such report.
func reportsOf[T any](
	ctx context.Context, s *service, whom *asked, q *question, own func() T, none error,
) (reports []told[T], missing []encode.Unanswered) {
	if whom.here {
		reports = append(reports, told[T]{s.self(), own()})
	}
	text, err := json.Marshal(q)
	if err != nil {
		s.log.Error("peers can't be asked", "about", q.About, "error", err) // never: it can be encoded
	}
	ctx, cancel := context.WithTimeout(ctx, peersAnswerWithin)
	defer cancel()
	answers, errs := make([]T, len(whom.others)), make([]error, len(whom.others))
	var all sync.WaitGroup
	for i := range whom.others {
		all.Go(func() { errs[i] = s.askPeer(ctx, whom.others[i], text, &answers[i]) })
	}
	all.Wait()
	missing = []encode.Unanswered{}
	for i, err := range errs {
		switch {
		case err == nil:
			reports = append(reports, told[T]{whom.others[i], answers[i]})
		case errors.Is(err, errNoReport):
			missing = append(missing, unanswered(&whom.others[i], none))
		default:
			missing = append(missing, unanswered(&whom.others[i], err))
		}
	}
	return reports, missing
}

// askPeer fills in the report by which member answers text.
func (s *service) askPeer(ctx context.Context, member cluster.Member, text []byte, report any) error {
	if slices.ContainsFunc(s.peers.cluster.Status().Unreached, func(u cluster.Member) bool { return u.ID == member.ID }) {
		return errNoAnswer // asking it would only cost time
	}
	if member.Address == "" {
		return errNoAddress
	}
	answer, err := s.peers.pool.Report(ctx, member, text)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return errEarlier
	case err != nil:
		s.log.Info("a peer did not send its counts", "member", member.ID, "error", err)
		return errNoAnswer
	case len(answer) == 0:
		return errNoReport
	case json.Unmarshal(answer, report) != nil:
		return errEarlier
	}
	return nil
}
