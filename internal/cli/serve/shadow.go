package serve

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/shadow"
)

// observers are several that learn of every decision.
type observers []limiter.Observer

// Observe tells each of o.
func (o observers) Observe(op count.Op, key store.Key, cost int64, d *count.Decision) {
	for _, one := range o {
		one.Observe(op, key, cost, d)
	}
}

// peersAnswerWithin is how long an instance has to say what it counted: what is asked for is in its memory.
const peersAnswerWithin = time.Second

// shadowReport returns what this instance counted of policy, for another one; empty: nothing of it is in shadow.
func (s *service) shadowReport(policy string) []byte {
	r, known := s.shadows.Report(policy)
	if !known {
		return nil
	}
	text, err := json.Marshal(&r)
	if err != nil {
		s.log.Warn("what shadows would deny can't be told to a peer", "policy", policy, "error", err)
	}
	return text
}

// shadowOf adds up what all instances counted of policy.
func (s *service) shadowOf(ctx context.Context, policy string) encode.Shadow {
	a := encode.Shadow{
		Scope:  encode.ScopeInstance,
		Limits: []encode.ShadowLimit{}, Instances: []encode.ShadowInstance{}, Unanswered: []encode.ShadowUnanswered{},
	}
	a.Version, _ = s.engine.Version()
	sum, known := s.shadows.Report(policy)
	if !known {
		return a
	}
	a.Instances = append(a.Instances, encode.ShadowInstance{Instance: s.shadowName(), Since: sum.Since, Calls: sum.Calls})
	for _, p := range s.askPeers(ctx, policy, sum.Print) {
		a.Scope = encode.ScopeInstances
		if p.err != nil {
			a.Unanswered = append(a.Unanswered, encode.ShadowUnanswered{
				Instance: string(p.member.ID), Address: p.member.Address, Reason: p.err.Error(),
			})
			continue
		}
		a.Instances = append(a.Instances, encode.ShadowInstance{Instance: string(p.member.ID), Since: p.report.Since, Calls: p.report.Calls})
		sum.Add(&p.report)
	}
	a.Since, a.Calls, a.Denied, a.Undecided = &sum.Since, sum.Calls, sum.Denied, sum.Undecided
	a.WouldDeny, a.Callers = sum.WouldDeny, sum.Callers.Count()
	for i := range sum.Limits {
		l := &sum.Limits[i]
		a.Limits = append(a.Limits, encode.ShadowLimit{
			Name: l.Name, WouldDeny: l.WouldDeny, Callers: l.Callers.Count(), Hours: spansOf(l.Hours), Minutes: spansOf(l.Minutes),
		})
	}
	return a
}

// shadowName returns what this instance is called among its peers, or by itself.
func (s *service) shadowName() string {
	if s.peers.cluster != nil {
		if self := s.peers.cluster.Self(); self != "" {
			return string(self)
		}
	}
	return s.name()
}

func spansOf(spans []shadow.Span) []encode.ShadowSpan {
	all := make([]encode.ShadowSpan, len(spans))
	for i := range spans {
		all[i] = encode.ShadowSpan{
			Start: spans[i].Start, Calls: spans[i].Calls, WouldDeny: spans[i].WouldDeny, Callers: spans[i].Callers.Count(),
		}
	}
	return all
}

// peerReport is what a peer counted, or why that is not known.
type peerReport struct {
	member cluster.Member
	report shadow.Report
	err    error
}

// askPeers returns what each of the other instances counted of policy, whose shadows have this print.
func (s *service) askPeers(ctx context.Context, policy string, print uint64) []peerReport {
	if s.peers.cluster == nil {
		return nil
	}
	view := s.peers.cluster.Status()
	var reports []peerReport
	for _, member := range view.View.Members {
		if member.ID != view.Self {
			reports = append(reports, peerReport{member: member})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, peersAnswerWithin)
	defer cancel()
	var all sync.WaitGroup
	for i := range reports {
		r := &reports[i]
		all.Go(func() { r.err = s.askPeer(ctx, r, policy, print) })
	}
	all.Wait()
	return reports
}

// Why what an instance counted is not known.
var (
	errNoAddress    = errors.New("it has no address: it was given no --peer-listen")
	errNoAnswer     = errors.New("it did not answer")
	errEarlier      = errors.New("it is of a release that does not count what shadows would deny")
	errOtherShadows = errors.New("another version of the policy is in force there")
)

// askPeer fills in what r's member counted.
func (s *service) askPeer(ctx context.Context, r *peerReport, policy string, print uint64) error {
	if r.member.Address == "" {
		return errNoAddress
	}
	text, err := s.peers.pool.Shadow(ctx, r.member, policy)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return errEarlier
	case err != nil:
		s.log.Warn("a peer did not say what shadows would deny", "member", r.member.ID, "error", err)
		return errNoAnswer
	case len(text) == 0 || json.Unmarshal(text, &r.report) != nil || r.report.Print != print:
		return errOtherShadows
	}
	return nil
}
