package ui

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Report has an instance's counts under all policies, to be added to the reports of others.
type Report struct {
	ID   string `json:"-"` // of the instance
	Self bool   `json:"-"` // it is the instance that was asked

	State
	Requests   Histogram `json:"requests"`   // of State.Latency
	Operations Histogram `json:"operations"` // of the store, likewise
}

// InstanceState is an instance among those of a State.
type InstanceState struct {
	ID        string    `json:"instance"` // id of the member, or its name
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
	Since     time.Time `json:"since"` // when its hour of decisions, or the instance, began
	Decisions Decisions `json:"decisions"`
	Latency   Latency   `json:"latency"`
	Ready     bool      `json:"ready"`
	Clock     Clock     `json:"clock"`
}

// Unanswered is an instance whose figures are missing.
type Unanswered struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Reason   string `json:"reason"`
}

// Values of State.Scope.
const (
	ScopeInstance  = "instance"  // of one instance, which is alone or was named
	ScopeInstances = "instances" // of all that decide together
)

const (
	policiesListed = 200 // in an answer
	warningsOf     = 100 // in an answer
)

// Report returns this instance's counts.
func (u *UI) Report() Report {
	now := u.read()
	u.mu.Lock()
	defer u.mu.Unlock()
	minute := &u.recent[0]
	r := Report{
		Requests: now.requests.since(&minute.requests), Operations: now.store.since(&minute.store),
		State: State{
			Instance: u.opts.Instance, Now: now.at, Since: u.since(), Policies: u.policies(&now), Confirmations: u.confirmationsOfDay(&now),
			Store: u.store(&now), Clock: u.clock(&now), Worst: u.worst, Audit: u.audit.latest(),
		},
	}
	if u.opts.Warnings != nil {
		r.Warnings = u.opts.Warnings()
	}
	return r
}

// Sum returns the state of the instances with these reports, without policies that may does not permit. A line of the
// audit log without a policy needs the permission for the name "". missing are the instances that did not report. u
// belongs to the instance that was asked.
func (u *UI) Sum(scope string, reports []Report, missing []Unanswered, may func(policy string) bool) State {
	now := u.opts.Now()
	s := State{
		Scope: scope, Instance: u.opts.Instance, Instances: []InstanceState{}, Unanswered: append([]Unanswered{}, missing...),
		Now: now, Since: now, Policies: []PolicyState{}, Confirmations: []ConfirmationState{}, Worst: []WorstKey{},
		Audit: []json.RawMessage{}, Warnings: []string{}, Store: Store{Ready: len(reports) > 0}, Clock: Clock{WithinTolerance: true},
	}
	if len(reports) > 0 {
		s.Instance = reports[0].Instance
	}
	if u.opts.Members != nil {
		members := u.opts.Members()
		s.Members = &members
	}
	var requests, operations Histogram
	var policies merged[string, PolicyState]
	var confirmed merged[destination, ConfirmationState]
	var worst merged[[2]string, WorstKey]
	for i := range reports {
		r := &reports[i]
		var own Decisions
		for _, p := range r.Policies {
			if may(p.Name) {
				own = own.plus(&p.Decisions)
				policies.add(p.Name, p, (*PolicyState).add)
			}
		}
		for _, c := range r.Confirmations {
			if may(c.Policy) {
				confirmed.add(destination{c.Policy, c.Country}, c, (*ConfirmationState).add)
			}
		}
		for _, w := range r.Worst {
			if may(w.Policy) {
				worst.add([2]string{w.Policy, w.Key}, w, func(sum, more *WorstKey) { sum.Attempts += more.Attempts })
			}
		}
		s.Instances = append(s.Instances, InstanceState{
			ID: r.ID, Name: r.Instance.Name, Version: r.Instance.Version, Started: r.Instance.Started, Since: r.Since,
			Decisions: own, Latency: latencyOf(&r.Requests), Ready: r.Store.Ready, Clock: r.Clock,
		})
		s.Decisions = s.Decisions.plus(&own)
		requests.plus(&r.Requests)
		operations.plus(&r.Operations)
		s.addFacts(r, may)
	}
	s.Latency, s.Store.Latency = latencyOf(&requests), latencyOf(&operations)
	s.list(policies.all, confirmed.all, worst.all)
	return s
}

// addFacts adds the parts of r that belong to no policy, and the lines of its audit log.
func (s *State) addFacts(r *Report, may func(policy string) bool) {
	if r.Since.Before(s.Since) {
		s.Since = r.Since
	}
	s.Store.add(&r.Store)
	s.Clock.add(&r.Clock)
	s.Audit = append(s.Audit, linesAbout(r.Audit, may)...)
	for _, w := range r.Warnings {
		if !r.Self {
			w = r.ID + ": " + w
		}
		s.Warnings = append(s.Warnings, w)
	}
}

// list sorts the sums, and keeps the first of them.
func (s *State) list(policies []PolicyState, confirmed []ConfirmationState, worst []WorstKey) {
	slices.SortStableFunc(policies, func(a, b PolicyState) int { return cmp.Compare(b.sum(), a.sum()) })
	s.Policies = append(s.Policies, policies[:min(policiesListed, len(policies))]...)
	s.LeftOut = len(policies) - len(s.Policies)
	s.Confirmations = append(s.Confirmations, listConfirmations(confirmed)...)
	slices.SortFunc(worst, func(a, b WorstKey) int { return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(a.Key, b.Key)) })
	s.Worst = append(s.Worst, worst[:min(worstKept, len(worst))]...)
	s.Audit = newestLines(s.Audit)
	s.Warnings = s.Warnings[:min(warningsOf, len(s.Warnings))]
}

// merged has the sums of values with the same key, in the order of their first values.
type merged[K comparable, V any] struct {
	at  map[K]int
	all []V
}

// add adds v to the value with the same key.
func (m *merged[K, V]) add(key K, v V, plus func(sum, more *V)) {
	if i, there := m.at[key]; there {
		plus(&m.all[i], &v)
		return
	}
	if m.at == nil {
		m.at = make(map[K]int)
	}
	m.at[key] = len(m.all)
	m.all = append(m.all, v)
}

func (p *PolicyState) add(more *PolicyState) {
	p.Decisions = p.plus(&more.Decisions)
	p.Calls.Allowed += more.Calls.Allowed
	p.Calls.Denied += more.Calls.Denied
	p.Calls.WouldDeny += more.Calls.WouldDeny
}

func (d Decisions) plus(more *Decisions) Decisions {
	d.Allowed, d.Denied, d.WouldDeny = d.Allowed+more.Allowed, d.Denied+more.Denied, d.WouldDeny+more.WouldDeny
	d.DeniedFor.OverLimit += more.DeniedFor.OverLimit
	d.DeniedFor.Blocked += more.DeniedFor.Blocked
	d.DeniedFor.Refused += more.DeniedFor.Refused
	d.DeniedFor.StoreError += more.DeniedFor.StoreError
	d.AllowedPerSecond = round(d.AllowedPerSecond + more.AllowedPerSecond)
	d.DeniedPerSecond = round(d.DeniedPerSecond + more.DeniedPerSecond)
	d.WouldDenyPerSecond = round(d.WouldDenyPerSecond + more.WouldDenyPerSecond)
	return d
}

// add adds the store's state on another instance. Delays are those of the instance that is furthest behind.
func (s *Store) add(more *Store) {
	s.Ready, s.BreakerOpen = s.Ready && more.Ready, s.BreakerOpen || more.BreakerOpen
	s.Failures, s.Degraded, s.WaitingKeys = s.Failures+more.Failures, s.Degraded+more.Degraded, s.WaitingKeys+more.WaitingKeys
	s.LagSeconds, s.UnsavedSeconds = max(s.LagSeconds, more.LagSeconds), max(s.UnsavedSeconds, more.UnsavedSeconds)
}

// add sets c to another instance's clock if that is further off.
func (c *Clock) add(more *Clock) {
	c.WithinTolerance = c.WithinTolerance && more.WithinTolerance
	if c.OffsetMS == nil || more.OffsetMS != nil && max(*more.OffsetMS, -*more.OffsetMS) > max(*c.OffsetMS, -*c.OffsetMS) {
		c.OffsetMS = more.OffsetMS
	}
}
