package serve

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// openUI makes the live page from the parts of s if the settings ask for it.
func (s *service) openUI() {
	if !s.settings.UI {
		return
	}
	options := ui.Options{
		Instance: ui.Instance{
			Name: s.name(), Version: s.process.Version, Started: s.process.Now(), Store: s.settings.Store,
			Namespace: s.settings.Namespace, ClockToleranceMS: float64(s.settings.ClockTolerance.Microseconds()) / 1000,
		},
		Metrics: s.registry, Now: s.process.Now, Ready: s.store.ready, Warnings: s.warnings,
		Policies: s.policiesOfUI, Worst: s.worstOfUI,
	}
	if s.peers.cluster != nil {
		options.Members = func() ui.Members {
			status := s.peers.cluster.Status()
			return membersOfUI(&status)
		}
	}
	s.ui = ui.New(options)
	s.audit.tee(s.ui.AuditLine)
}

// apiUI returns the live page in the form that the API serves; nil without --ui.
func (s *service) apiUI() *api.UI {
	if s.ui == nil {
		return nil
	}
	return &api.UI{Page: ui.Page(), State: s.stateOf, History: s.historyOf}
}

// errNoPage is the reason of an instance that keeps no figures for the page.
var errNoPage = errors.New("it was started without --ui")

// stateOf returns the state of one instance, or of all.
func (s *service) stateOf(ctx context.Context, instance string, may func(policy string) bool) (any, error) {
	whom, err := s.whom(instance)
	if err != nil {
		return nil, err
	}
	answers, unanswered := reportsOf(ctx, s, &whom, &question{About: aboutState}, s.ui.Report, errNoPage)
	var reports []ui.Report
	for i, a := range answers {
		a.report.ID, a.report.Self = string(a.member.ID), whom.here && i == 0
		reports = append(reports, a.report)
	}
	var missing []ui.Unanswered
	for _, u := range unanswered {
		missing = append(missing, ui.Unanswered(u))
	}
	return s.ui.Sum(whom.scope(), reports, missing, may), nil
}

// historyOf returns the decisions of the last hour, of one instance or all, under one policy or all.
func (s *service) historyOf(ctx context.Context, instance, policy string, may func(policy string) bool) (any, error) {
	whom, err := s.whom(instance)
	if err != nil {
		return nil, err
	}
	q := &question{About: aboutHistory, All: policy == "" && may("")}
	switch {
	case policy != "":
		q.Policies = []string{policy}
	case !q.All:
		for _, p := range s.engine.Policies() {
			if may(p.Name) {
				q.Policies = append(q.Policies, p.Name)
			}
		}
	}
	// The state names instances whose history is missing.
	reports, _ := reportsOf(ctx, s, &whom, q, func() ui.History { return s.ui.History(q.shows) }, errNoPage)
	var all []ui.History
	for _, r := range reports {
		all = append(all, r.report)
	}
	return ui.SumOfHistories(all), nil
}

// policiesOfUI returns the policies in force.
func (s *service) policiesOfUI() (all []ui.Policy) {
	for _, p := range s.engine.Policies() {
		all = append(all, ui.Policy{Name: p.Name, Mode: string(p.Mode)})
	}
	return all
}

// worstOfUI returns the keys that went the furthest past the limits of a policy.
func (s *service) worstOfUI(policy string, top int) (worst []ui.WorstKey) {
	r, _ := s.measured.Overshoot(policy, top)
	for _, w := range r.Worst {
		worst = append(worst, ui.WorstKey{Policy: policy, Key: hex.EncodeToString(w.Key.Bytes()), Attempts: w.Attempts})
	}
	return worst
}

// membersOfUI returns status in the form of the live page.
func membersOfUI(status *cluster.Status) ui.Members {
	m := ui.Members{View: status.View.Number, Mode: string(status.View.Mode), Installed: status.Installed, List: []ui.Member{}}
	shares := status.View.Shares()
	for i, member := range status.View.Members {
		m.List = append(m.List, ui.Member{
			ID: string(member.ID), Address: member.Address, Share: float64(shares[i]) / cluster.Slots, Self: member.ID == status.Self,
		})
	}
	return m
}

// runUI records the last hour for the page, until ctx ends.
func (s *service) runUI(ctx context.Context) error {
	if s.ui == nil {
		return untilDone(ctx)
	}
	return s.ui.Run(ctx)
}
