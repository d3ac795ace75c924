package ui

import (
	"maps"
	"math"
	"slices"
	"time"
)

// policiesKept is the maximum of policies whose last hour is kept, at 6 kB each.
const policiesKept = 1000

// The latencies that are kept.
const (
	requestP50 = iota
	requestP99
	storeP99
	latencies
)

// history has the samples of the last hour. A new one overwrites the oldest.
type history struct {
	moments  [samplesKept]moment
	policies map[string]*series // that had decisions within the hour
	next     int
	taken    int // samples, samplesKept at most
}

// moment is the part of a sample that belongs to no policy.
type moment struct {
	at       time.Time
	lasted   float64            // seconds since the one before
	latency  [latencies]float64 // seconds; NaN: there were no requests
	failures float64            // of the store
	degraded float64            // decisions
}

func newMoment(before, now *reading) moment {
	requests, store := now.requests.since(&before.requests), now.store.since(&before.store)
	return moment{
		at: now.at, lasted: max(now.at.Sub(before.at).Seconds(), 0.001),
		latency: [latencies]float64{
			requests.quantile(0.5), requests.quantile(0.99), store.quantile(0.99),
		},
		failures: max(0, now.storeFailures-before.storeFailures), degraded: max(0, now.degraded-before.degraded),
	}
}

// series are the decisions of one policy in each sample.
type series [samplesKept][kinds]uint32

func newHistory() history { return history{policies: make(map[string]*series)} }

// add adds a sample of the increase from before to now.
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

// History is the last hour of one policy, or of all together. Elements with the same index belong to one sample, at the
// time of its end, the oldest first. The first is given twice, also at the time of its begin.
type History struct {
	Times      []int64    `json:"times"`   // Unix seconds
	Allowed    []float64  `json:"allowed"` // decisions per second, as those below
	Denied     []float64  `json:"denied"`
	WouldDeny  []float64  `json:"would_deny"`
	P50MS      []*float64 `json:"p50_ms"` // of requests under any policy; nil: there were none
	P99MS      []*float64 `json:"p99_ms"`
	StoreP99MS []*float64 `json:"store_p99_ms"` // nil: the store was not asked
}

// History returns the last hour of the policies that are shown. It ends with the counts since the last sample.
func (u *UI) History(shown func(policy string) bool) History {
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
	if now.at.Sub(u.sampled.at) < readEvery {
		return told // too short for a rate
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
	p := point{rates: [rates]float64{sum[allowed] / m.lasted, sum.denials() / m.lasted, sum[wouldDeny] / m.lasted}}
	for i, seconds := range m.latency {
		p.latencies[i] = milliseconds(seconds)
	}
	h.append(m.at.Add(-time.Duration(m.lasted*float64(time.Second))).Unix(), m.at.Unix(), &p)
}

// rates is the number of rates in a History: allowed, denied and would-deny.
const rates = 3

// point is a History's data between two of its times.
type point struct {
	rates     [rates]float64
	latencies [latencies]*float64
}

// append appends p at the time ended, and at began if h is empty.
func (h *History) append(began, ended int64, p *point) {
	times := []int64{began, ended}
	if len(h.Times) > 0 {
		times = times[1:]
	}
	for _, t := range times {
		h.Times = append(h.Times, t)
		for i, line := range h.rates() {
			*line = append(*line, round(p.rates[i]))
		}
		for i, line := range h.latencies() {
			*line = append(*line, p.latencies[i])
		}
	}
}

func (h *History) rates() [rates]*[]float64 {
	return [...]*[]float64{&h.Allowed, &h.Denied, &h.WouldDeny}
}

func (h *History) latencies() [latencies]*[]*float64 {
	return [...]*[]*float64{requestP50: &h.P50MS, requestP99: &h.P99MS, storeP99: &h.StoreP99MS}
}

// SumOfHistories returns the last hour of several instances together, with the sums of decisions, and the latencies of
// the slowest instance.
func SumOfHistories(all []History) (sum History) {
	all = slices.DeleteFunc(all, func(h History) bool { return !h.valid() })
	switch len(all) {
	case 0:
		sum.Times, sum.Allowed, sum.Denied, sum.WouldDeny = []int64{}, []float64{}, []float64{}, []float64{}
		sum.P50MS, sum.P99MS, sum.StoreP99MS = []*float64{}, []*float64{}, []*float64{}
		return sum
	case 1:
		return all[0]
	}
	first, last := int64(math.MaxInt64), int64(0)
	for i := range all {
		first, last = min(first, all[i].Times[0]), max(last, all[i].Times[len(all[i].Times)-1])
	}
	first = max(first, last-int64(time.Hour/time.Second)-int64(sampleEvery/time.Second)) // whatever an instance reports
	for began := first; began < last; {
		ended := min(began+int64(sampleEvery/time.Second), last)
		var p point
		for i := range all {
			p.add(all[i].between(began, ended))
		}
		sum.append(began, ended, &p)
		began = ended
	}
	return sum
}

// valid reports whether h has samples, and the same number in each of its members.
func (h *History) valid() bool {
	n := len(h.Times)
	for i := range rates {
		if len(*h.rates()[i]) != n || len(*h.latencies()[i]) != n {
			return false
		}
	}
	return n > 1
}

// between returns the average rates and the longest latencies of h between two times.
func (h *History) between(began, ended int64) (p point) {
	covered := int64(0)
	for i := 1; i < len(h.Times); i++ {
		lasts := min(h.Times[i], ended) - max(h.Times[i-1], began)
		if lasts <= 0 {
			continue
		}
		covered += lasts
		var of point
		for j := range rates {
			of.rates[j], of.latencies[j] = float64(lasts)*(*h.rates()[j])[i], (*h.latencies()[j])[i]
		}
		p.add(of)
	}
	for j := range p.rates {
		p.rates[j] /= float64(max(1, covered))
	}
	return p
}

// add adds the rates of other to p, and takes the longer latencies.
func (p *point) add(other point) {
	for j := range rates {
		p.rates[j] += other.rates[j]
		if l := other.latencies[j]; p.latencies[j] == nil || l != nil && *l > *p.latencies[j] {
			p.latencies[j] = l
		}
	}
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
