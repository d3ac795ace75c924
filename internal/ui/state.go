package ui

import (
	"encoding/json"
	"time"
)

// State is the state of all instances that decide together, or of one, on the page and in "ratelimitd top". Durations
// are null if there were no requests.
type State struct {
	Scope         string              `json:"scope"`      // ScopeInstance or ScopeInstances
	Instance      Instance            `json:"instance"`   // that was asked, or the named one if it answered
	Instances     []InstanceState     `json:"instances"`  // whose figures these are
	Unanswered    []Unanswered        `json:"unanswered"` // instances whose figures are missing
	Now           time.Time           `json:"now"`
	Since         time.Time           `json:"since"`         // when the hour of decisions began, or the instance that began first
	Decisions     Decisions           `json:"decisions"`     // of all permitted policies
	Policies      []PolicyState       `json:"policies"`      // those with the most decisions first
	LeftOut       int                 `json:"left_out"`      // policies that are not listed
	Confirmations []ConfirmationState `json:"confirmations"` // of the last day, those with the most unconfirmed units first
	Latency       Latency             `json:"latency"`       // of requests for decisions, within the last minute
	Store         Store               `json:"store"`
	Clock         Clock               `json:"clock"`
	Members       *Members            `json:"members"` // as known to the instance that was asked; null: it is alone
	Worst         []WorstKey          `json:"worst"`
	Audit         []json.RawMessage   `json:"audit"` // the latest lines, the newest first
	Warnings      []string            `json:"warnings"`
}

// Decisions are numbers of decisions within the hour, and per second within the last few seconds.
type Decisions struct {
	Allowed            float64 `json:"allowed"`
	Denied             float64 `json:"denied"` // for whatever reason
	DeniedFor          Reasons `json:"denied_for"`
	WouldDeny          float64 `json:"would_deny"` // allowed in mode shadow, and denied in mode enforce
	AllowedPerSecond   float64 `json:"allowed_per_second"`
	DeniedPerSecond    float64 `json:"denied_per_second"`
	WouldDenyPerSecond float64 `json:"would_deny_per_second"`
}

// Reasons are numbers of denials within the hour, by their reason.
type Reasons struct {
	OverLimit  float64 `json:"over_limit"`
	Blocked    float64 `json:"blocked"`     // by block_for or an override
	Refused    float64 `json:"refused"`     // by countries or number_types
	StoreError float64 `json:"store_error"` // by on_store_error: the store did not answer
}

// PolicyState is a policy, its decisions, and the calls that asked for it.
type PolicyState struct {
	Name string `json:"name"`
	Mode string `json:"mode"`
	Decisions
	Calls Calls `json:"calls"`
}

// Calls are numbers of calls that asked for a policy within the hour, by the outcome of the whole call, which another
// demand or a derived policy may have denied.
type Calls struct {
	Allowed   float64 `json:"allowed"`
	Denied    float64 `json:"denied"`
	WouldDeny float64 `json:"would_deny"`
}

// Latency has quantiles of durations.
type Latency struct {
	P50MS *float64 `json:"p50_ms"`
	P99MS *float64 `json:"p99_ms"`
}

// Store is the state of the store.
type Store struct {
	Ready          bool    `json:"ready"`
	BreakerOpen    bool    `json:"breaker_open"`
	Latency        Latency `json:"latency"`  // within the last minute
	Failures       float64 `json:"failures"` // operations that failed within the hour
	Degraded       float64 `json:"degraded"` // decisions that on_store_error made within the hour
	WaitingKeys    float64 `json:"waiting_keys"`
	LagSeconds     float64 `json:"lag_seconds"`     // age of the oldest units that are not written yet
	UnsavedSeconds float64 `json:"unsaved_seconds"` // age of the oldest counts that are not in --data-dir
}

// Clock is the state of this instance's clock.
type Clock struct {
	OffsetMS        *float64 `json:"offset_ms"` // ahead of the store's; null: there is one clock
	WithinTolerance bool     `json:"within_tolerance"`
}

// since returns when the oldest sample was taken.
func (u *UI) since() time.Time {
	if u.history.taken < samplesKept {
		return u.opts.Instance.Started
	}
	return u.history.moments[u.history.next].at
}

// policies returns the decisions of each policy.
func (u *UI) policies(now *reading) []PolicyState {
	before := u.before(now.at)
	per := max(now.at.Sub(before.at).Seconds(), 1)
	listed := []PolicyState{}
	for _, p := range u.opts.Policies() {
		ofHour := u.ofHour(now, p.Name)
		ofSeconds := now.policies[p.Name].since(before.policies[p.Name])
		listed = append(listed, PolicyState{
			p.Name, p.Mode, newDecisions(ofHour, ofSeconds, per), Calls{ofHour[callsAllowed], ofHour[callsDenied], ofHour[callsWouldDeny]},
		})
	}
	return listed
}

func newDecisions(hour, seconds outcomes, per float64) Decisions {
	return Decisions{
		Allowed: hour[allowed], Denied: hour.denials(), WouldDeny: hour[wouldDeny],
		DeniedFor: Reasons{
			OverLimit: hour[denied], Blocked: hour[blocked], Refused: hour[refused], StoreError: hour[degradedDenied],
		},
		AllowedPerSecond: round(seconds[allowed] / per), DeniedPerSecond: round(seconds.denials() / per),
		WouldDenyPerSecond: round(seconds[wouldDeny] / per),
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

func latencyOf(h *Histogram) Latency {
	return Latency{milliseconds(h.quantile(0.5)), milliseconds(h.quantile(0.99))}
}

// store returns the state of the store, without its latency.
func (u *UI) store(now *reading) Store {
	s := Store{
		Ready: u.ready, BreakerOpen: now.breakerOpen,
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
