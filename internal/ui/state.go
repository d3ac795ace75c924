package ui

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// State is how an instance is now, as the page and "ratelimitd top" show it. Durations of null are of
// nothing: there was no request.
type State struct {
	Instance  Instance          `json:"instance"`
	Now       time.Time         `json:"now"`
	Since     time.Time         `json:"since"`     // when the hour of decisions began, or the instance
	Decisions Decisions         `json:"decisions"` // of all policies that may be asked about
	Policies  []PolicyState     `json:"policies"`  // those with the most decisions first
	LeftOut   int               `json:"left_out"`  // policies that are not listed
	Latency   Latency           `json:"latency"`   // of requests for decisions, within the last minute
	Store     Store             `json:"store"`
	Clock     Clock             `json:"clock"`
	Members   *Members          `json:"members"` // null: the instance is alone
	Worst     []WorstKey        `json:"worst"`
	Audit     []json.RawMessage `json:"audit"` // the latest lines, the newest first
	Warnings  []string          `json:"warnings"`
}

// Decisions are numbers of decisions within the hour, and per second of the last few.
type Decisions struct {
	Allowed            float64 `json:"allowed"`
	Denied             float64 `json:"denied"`
	WouldDeny          float64 `json:"would_deny"` // allowed by mode shadow, and denied under enforce
	AllowedPerSecond   float64 `json:"allowed_per_second"`
	DeniedPerSecond    float64 `json:"denied_per_second"`
	WouldDenyPerSecond float64 `json:"would_deny_per_second"`
}

// PolicyState is a policy and its decisions.
type PolicyState struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
	Decisions
}

// Latency is how long something took.
type Latency struct {
	P50MS *float64 `json:"p50_ms"`
	P99MS *float64 `json:"p99_ms"`
}

// Store is how the store is.
type Store struct {
	Ready          bool    `json:"ready"`
	BreakerOpen    bool    `json:"breaker_open"`
	Latency        Latency `json:"latency"`  // within the last minute
	Failures       float64 `json:"failures"` // operations that failed within the hour
	Degraded       float64 `json:"degraded"` // decisions that on_store_error made within the hour
	WaitingKeys    float64 `json:"waiting_keys"`
	LagSeconds     float64 `json:"lag_seconds"`     // of the oldest of what waits to be written
	UnsavedSeconds float64 `json:"unsaved_seconds"` // of the oldest of what --data-dir can't keep
}

// Clock is how this instance's clock is.
type Clock struct {
	OffsetMS        *float64 `json:"offset_ms"` // ahead of the store's; null: there is one clock
	WithinTolerance bool     `json:"within_tolerance"`
}

// policiesListed bounds the policies of one answer: nobody reads more.
const policiesListed = 200

// State returns how the instance is now, as far as may lets its caller ask about policies. A line of
// the audit log that is about no policy is for who may ask about any, and of the name "".
func (u *UI) State(may func(policy string) bool) State {
	now := u.read()
	u.mu.Lock()
	defer u.mu.Unlock()
	s := State{Instance: u.opts.Instance, Now: now.at, Since: u.since(), Audit: u.audit.latest(may), Worst: []WorstKey{}, Warnings: []string{}}
	s.Policies, s.LeftOut = u.decisions(&now, may, &s.Decisions)
	minute := &u.recent[0]
	s.Latency = latencyOf(&now.requests, &minute.requests)
	s.Store = u.store(&now, minute)
	s.Clock = u.clock(&now)
	for _, w := range u.worst {
		if may(w.Policy) {
			s.Worst = append(s.Worst, w)
		}
	}
	slices.SortFunc(s.Worst, func(a, b WorstKey) int { return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(a.Key, b.Key)) })
	s.Worst = s.Worst[:min(worstKept, len(s.Worst))]
	if u.opts.Members != nil {
		members := u.opts.Members()
		s.Members = &members
	}
	if u.opts.Warnings != nil {
		s.Warnings = append(s.Warnings, u.opts.Warnings()...)
	}
	return s
}

// since returns when the oldest sample was taken.
func (u *UI) since() time.Time {
	if u.history.taken < samplesKept {
		return u.opts.Instance.Started
	}
	return u.history.moments[u.history.next].at
}

// decisions returns those of each policy, and adds them up in all.
func (u *UI) decisions(now *reading, may func(string) bool, all *Decisions) (listed []PolicyState, leftOut int) {
	before := u.before(now.at)
	per := max(now.at.Sub(before.at).Seconds(), 1)
	listed = []PolicyState{}
	var hour, rate outcomes
	for _, p := range u.opts.Policies() {
		if !may(p.Name) {
			continue
		}
		ofHour := u.ofHour(now, p.Name)
		ofSeconds := now.policies[p.Name].since(before.policies[p.Name])
		hour, rate = hour.plus(ofHour), rate.plus(ofSeconds)
		listed = append(listed, PolicyState{p.Name, p.Mode, newDecisions(ofHour, ofSeconds, per)})
	}
	*all = newDecisions(hour, rate, per)
	slices.SortStableFunc(listed, func(a, b PolicyState) int { return cmp.Compare(b.sum(), a.sum()) })
	if leftOut = len(listed) - policiesListed; leftOut > 0 {
		listed = listed[:policiesListed]
	}
	return listed, max(0, leftOut)
}

func newDecisions(hour, seconds outcomes, per float64) Decisions {
	return Decisions{
		hour[allowed], hour[denied], hour[wouldDeny],
		round(seconds[allowed] / per), round(seconds[denied] / per), round(seconds[wouldDeny] / per),
	}
}

func (d *PolicyState) sum() float64 { return d.Allowed + d.Denied + d.WouldDeny }

// before returns the latest reading that is a few seconds older than at, else the oldest.
func (u *UI) before(at time.Time) *reading {
	for i := len(u.recent) - 1; i > 0; i-- {
		if at.Sub(u.recent[i].at) >= readEvery {
			return &u.recent[i]
		}
	}
	return &u.recent[0]
}

func latencyOf(now, before *histogram) Latency {
	return Latency{milliseconds(now.quantile(0.5, before)), milliseconds(now.quantile(0.99, before))}
}

func (u *UI) store(now, minute *reading) Store {
	s := Store{
		Ready: u.ready, BreakerOpen: now.breakerOpen, Latency: latencyOf(&now.store, &minute.store),
		Failures: now.storeFailures - u.sampled.storeFailures, Degraded: now.degraded - u.sampled.degraded,
		WaitingKeys: now.gauges["ratelimitd_local_waiting_keys"], LagSeconds: round(now.gauges["ratelimitd_local_lag_seconds"]),
		UnsavedSeconds: round(now.gauges["ratelimitd_data_unsaved_seconds"]),
	}
	for _, i := range u.history.order() {
		s.Failures += u.history.moments[i].failures
		s.Degraded += u.history.moments[i].degraded
	}
	return s
}

func (u *UI) clock(now *reading) Clock {
	if u.opts.Instance.ClockToleranceMS == 0 {
		return Clock{WithinTolerance: true}
	}
	offset := milliseconds(now.gauges["ratelimitd_clock_offset_seconds"])
	return Clock{offset, max(*offset, -*offset) <= u.opts.Instance.ClockToleranceMS}
}
