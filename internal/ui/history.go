package ui

import (
	"maps"
	"math"
	"time"
)

// policiesKept bounds the policies of which the last hour is kept, at 3 kB each.
const policiesKept = 1000

// The latencies that are kept.
const (
	requestP50 = iota
	requestP99
	storeP99
	latencies
)

// history is the last hour in samples. The oldest is overwritten.
type history struct {
	moments  [samplesKept]moment
	policies map[string]*series // that had decisions within the hour
	next     int
	taken    int // samples, samplesKept at most
}

// moment is what a sample has that is of no policy.
type moment struct {
	at       time.Time
	lasted   float64            // seconds since the one before
	latency  [latencies]float64 // seconds; NaN: nothing took any
	failures float64            // of the store
	degraded float64            // decisions
}

func newMoment(before, now *reading) moment {
	return moment{
		at: now.at, lasted: max(now.at.Sub(before.at).Seconds(), 0.001),
		latency: [latencies]float64{
			now.requests.quantile(0.5, &before.requests), now.requests.quantile(0.99, &before.requests), now.store.quantile(0.99, &before.store),
		},
		failures: max(0, now.storeFailures-before.storeFailures), degraded: max(0, now.degraded-before.degraded),
	}
}

// series are the decisions of one policy in each sample.
type series [samplesKept][kinds]uint32

func newHistory() history { return history{policies: make(map[string]*series)} }

// add adds a sample: what now has, and before has not.
func (h *history) add(before, now *reading) {
	i := h.next
	h.moments[i] = newMoment(before, now)
	for _, s := range h.policies {
		s[i] = [kinds]uint32{}
	}
	for name, all := range now.policies {
		more := all.since(before.policies[name])
		s := h.policies[name]
		if s == nil && (more.sum() == 0 || len(h.policies) >= policiesKept) {
			continue
		}
		if s == nil {
			s = new(series)
			h.policies[name] = s
		}
		for kind := range more {
			s[i][kind] = uint32(more[kind])
		}
	}
	h.next, h.taken = (i+1)%samplesKept, min(h.taken+1, samplesKept)
	maps.DeleteFunc(h.policies, func(_ string, s *series) bool { return s.sum().sum() == 0 })
}

// sum returns the decisions of the hour.
func (s *series) sum() (sum outcomes) {
	if s == nil {
		return sum
	}
	for i := range s {
		sum = sum.plus(s.at(i))
	}
	return sum
}

// at returns the decisions of sample i.
func (s *series) at(i int) (in outcomes) {
	for kind, n := range s[i] {
		in[kind] = float64(n)
	}
	return in
}

// order returns the indexes of the samples, the oldest first.
func (h *history) order() []int {
	indexes := make([]int, h.taken)
	for i := range indexes {
		indexes[i] = (h.next - h.taken + i + samplesKept) % samplesKept
	}
	return indexes
}

// History is the last hour of one policy, or of all together: members of the same index are of one
// sample, the oldest first.
type History struct {
	Times      []int64    `json:"times"`   // Unix seconds
	Allowed    []float64  `json:"allowed"` // decisions per second, as those below
	Denied     []float64  `json:"denied"`
	WouldDeny  []float64  `json:"would_deny"`
	P50MS      []*float64 `json:"p50_ms"` // of requests under any policy; nil: there were none
	P99MS      []*float64 `json:"p99_ms"`
	StoreP99MS []*float64 `json:"store_p99_ms"` // nil: the store was not asked
}

// History returns the last hour of the policy of that name, or of all that may be asked about if it is
// empty. It ends with what was counted since the last sample.
func (u *UI) History(policy string, may func(policy string) bool) History {
	shown := func(name string) bool { return may(name) && (policy == "" || policy == name) }
	now := u.read()
	u.mu.Lock()
	defer u.mu.Unlock()
	var told History
	var all []*series
	for name, s := range u.history.policies {
		if shown(name) {
			all = append(all, s)
		}
	}
	for _, i := range u.history.order() {
		var sum outcomes
		for _, s := range all {
			sum = sum.plus(s.at(i))
		}
		told.add(&u.history.moments[i], sum)
	}
	if now.at.Sub(u.sampled.at) < readEvery && len(told.Times) > 0 {
		return told // too little to tell a rate from
	}
	var sum outcomes
	for name, counted := range now.policies {
		if shown(name) {
			sum = sum.plus(counted.since(u.sampled.policies[name]))
		}
	}
	latest := newMoment(&u.sampled, &now)
	told.add(&latest, sum)
	return told
}

func (h *History) add(m *moment, sum outcomes) {
	h.Times = append(h.Times, m.at.Unix())
	h.Allowed = append(h.Allowed, round(sum[allowed]/m.lasted))
	h.Denied = append(h.Denied, round(sum[denied]/m.lasted))
	h.WouldDeny = append(h.WouldDeny, round(sum[wouldDeny]/m.lasted))
	h.P50MS = append(h.P50MS, milliseconds(m.latency[requestP50]))
	h.P99MS = append(h.P99MS, milliseconds(m.latency[requestP99]))
	h.StoreP99MS = append(h.StoreP99MS, milliseconds(m.latency[storeP99]))
}

// milliseconds returns seconds as such; nil for NaN.
func milliseconds(seconds float64) *float64 {
	if math.IsNaN(seconds) {
		return nil
	}
	ms := round(1000 * seconds)
	return &ms
}

// round rounds to thousandths.
func round(x float64) float64 { return math.Round(1000*x) / 1000 }
