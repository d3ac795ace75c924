// Package ui is the live page: the decisions of instances within the last hour, their latency, the state of their
// store, clocks and peers, and the actions of administrators. Each instance reports its counts, and the one that is
// asked sums them.
//
// It reads the metrics every few seconds, so that decisions pay nothing for it. It serves the page, which has no
// figures, and computes the figures. It knows neither routes and permissions nor how decisions are made. It knows
// callers by their hashed keys only.
package ui

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options of a UI. Metrics and Policies are needed.
type Options struct {
	Instance Instance
	Metrics  prometheus.Gatherer // the metrics of this instance
	Policies func() []Policy     // in force
	Now      func() time.Time    // nil: time.Now

	// Ready returns an error if no decisions can be made. It is called every few seconds; nil: they always can.
	Ready    func(context.Context) error
	Warnings func() []string // warnings for people; nil: none
	Members  func() Members  // instances that decide together; nil: this instance is alone

	// Worst returns the top keys that went the furthest past the limits of a policy; nil: they are not known.
	Worst func(policy string, top int) []WorstKey
}

// Instance has the constant properties of an instance.
type Instance struct {
	Name             string    `json:"name"`
	Version          string    `json:"version"`
	Started          time.Time `json:"started"`
	Store            string    `json:"store"`
	Namespace        string    `json:"namespace"`
	ClockToleranceMS float64   `json:"clock_tolerance_ms"` // 0: there is no other clock
}

// Policy has the data of a policy on the page besides its counts.
type Policy struct{ Name, Mode string }

// Members are the instances that decide together, by the latest view that this instance knows.
type Members struct {
	View      int64    `json:"view"`
	Mode      string   `json:"mode"`      // owners, or shared: all decide for all keys
	Installed bool     `json:"installed"` // the view is in force on all
	List      []Member `json:"list"`
}

// Member is an instance that may decide.
type Member struct {
	ID      string  `json:"id"`
	Address string  `json:"address,omitempty"`
	Share   float64 `json:"share"` // share of all keys that it owns, 0 to 1; 0 in mode shared
	Self    bool    `json:"self"`  // this instance
}

// WorstKey is a key that is often past its limit.
type WorstKey struct {
	Policy   string `json:"policy"`
	Key      string `json:"key"`      // hashed, in hex
	Attempts int64  `json:"attempts"` // lower bound of attempts past the limit
}

const (
	readEvery   = 5 * time.Second // short enough to show a burst, long enough to cost nothing
	recentFor   = time.Minute     // period of latencies
	recentKept  = int(recentFor/readEvery) + 1
	sampleEvery = 15 * time.Second // resolution of the charts of the hour
	samplesKept = int(time.Hour / sampleEvery)

	worstOf   = 10 // policies with the most denials: the search goes through all keys past their limits
	worstEach = 5
	worstKept = 10
)

// UI is the page of an instance. It is safe for concurrent use; make one with New.
type UI struct {
	opts  Options
	audit auditTail

	mu      sync.Mutex
	recent  []reading // of the last minute, the oldest first; never empty
	history history
	sampled reading    // the last one of the history
	day     []snapshot // of the last day, the oldest first
	worst   []WorstKey
	ready   bool
}

// New returns the page of an instance that has counted nothing yet.
func New(opts Options) *UI {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	u := &UI{opts: opts, ready: true, history: newHistory()}
	u.sampled.at = opts.Now()
	u.recent = []reading{u.sampled}
	return u
}

// Run reads the counts every five seconds until ctx ends. It returns nil.
func (u *UI) Run(ctx context.Context) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			u.Read(ctx)
		}
	}
}

// Read keeps the current counts, for the last minute and the last hour. Run calls it.
func (u *UI) Read(ctx context.Context) {
	now := u.read()
	ready := u.opts.Ready == nil || u.opts.Ready(ctx) == nil
	u.mu.Lock()
	u.ready = ready
	u.keepDay(&now)
	if now.at.Sub(u.sampled.at) >= sampleEvery {
		u.history.add(&u.sampled, &now)
		u.sampled = now
	}
	if u.recent = append(u.recent, now); len(u.recent) > recentKept {
		u.recent = u.recent[1:]
	}
	most := u.mostDenied(&now, worstOf)
	u.mu.Unlock()
	worst := u.findWorst(most)
	u.mu.Lock()
	u.worst = worst
	u.mu.Unlock()
}

// mostDenied returns the names of the most policies with the most denials within the hour.
func (u *UI) mostDenied(now *reading, most int) (names []string) {
	sums := make(map[string]float64)
	for name := range now.policies {
		sum := u.ofHour(now, name)
		if n := sum.denials() + sum[wouldDeny]; n > 0 {
			sums[name] = n
		}
	}
	names = slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a, b))
	})
	return names[:min(most, len(names))]
}

// ofHour returns the decisions under a policy within the hour that ends with now.
func (u *UI) ofHour(now *reading, name string) outcomes {
	return u.history.policies[name].sum().plus(now.policies[name].since(u.sampled.policies[name]))
}

// findWorst returns the worst keys under policies, those with the most attempts first.
func (u *UI) findWorst(policies []string) (worst []WorstKey) {
	if u.opts.Worst == nil {
		return nil
	}
	for _, name := range policies {
		worst = append(worst, u.opts.Worst(name, worstEach)...)
	}
	return worst
}

// read returns the current counts.
func (u *UI) read() reading {
	families, _ := u.opts.Metrics.Gather() // metrics that can't be gathered are missing
	return newReading(u.opts.Now(), families)
}
