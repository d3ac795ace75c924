// Package ui is the live page: what instances decided within the last hour, how long that took, how
// their store, clocks and peers are, and what administrators did. Each instance reports what it counted, and the one that is
// asked adds up.
//
// It reads what the metrics have counted, every few seconds, so that decisions pay nothing for it.
// It serves the page, which holds no figures, and makes the figures; it does not know HTTP's
// routes, who may ask, nor how anything is decided. A caller is known to it by hashed key only.
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

	// Ready says why no decisions can be made, nil when they can. It is asked every few seconds. nil: they always can.
	Ready    func(context.Context) error
	Warnings func() []string // what a person should look at all the same; nil: nothing
	Members  func() Members  // of those that decide together; nil: this instance is alone

	// Worst returns the keys that went furthest past the limits of a policy, at most top of them. nil: they are not known.
	Worst func(policy string, top int) []WorstKey
}

// Instance is what an instance is from its start on.
type Instance struct {
	Name             string    `json:"name"`
	Version          string    `json:"version"`
	Started          time.Time `json:"started"`
	Store            string    `json:"store"`
	Namespace        string    `json:"namespace"`
	ClockToleranceMS float64   `json:"clock_tolerance_ms"` // 0: there is one clock, and nothing to compare it with
}

// Policy has the page's data of a policy beside its counts.
type Policy struct{ Name, Mode string }

// Members are those that decide together, by the latest view that this instance knows.
type Members struct {
	View      int64    `json:"view"`
	Mode      string   `json:"mode"`      // owners, or shared: all decide for all keys
	Installed bool     `json:"installed"` // all go by the view
	List      []Member `json:"list"`
}

// Member is an instance that may decide.
type Member struct {
	ID      string  `json:"id"`
	Address string  `json:"address,omitempty"`
	Share   float64 `json:"share"` // of all keys, 0 to 1, that it owns; 0 in mode shared
	Self    bool    `json:"self"`  // this instance
}

// WorstKey is a key that is often past its limit.
type WorstKey struct {
	Policy   string `json:"policy"`
	Key      string `json:"key"`      // hashed, in hex
	Attempts int64  `json:"attempts"` // past the limit, at least so many
}

const (
	readEvery   = 5 * time.Second // often enough to see a burst, rarely enough to cost nothing
	recentFor   = time.Minute     // that latencies are of
	recentKept  = int(recentFor/readEvery) + 1
	sampleEvery = 15 * time.Second // of the hour: a chart shows no more
	samplesKept = int(time.Hour / sampleEvery)

	worstOf   = 10 // policies, those with the most denials: each is looked for among all keys past their limits
	worstEach = 5
	worstKept = 10
)

// UI is the page of one instance. It is safe for concurrent use; make one with New.
type UI struct {
	opts  Options
	audit auditTail

	mu      sync.Mutex
	recent  []reading // of the last minute, the oldest first; never empty
	history history
	sampled reading    // the one that the history ends with
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

// Read keeps the counts now, for the last minute and the last hour. Run calls it.
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

// mostDenied returns the names of the policies with the most denials within the hour, at most most of them.
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

// findWorst returns the worst keys under some policies, those with the most attempts first.
func (u *UI) findWorst(policies []string) (worst []WorstKey) {
	if u.opts.Worst == nil {
		return nil
	}
	for _, name := range policies {
		worst = append(worst, u.opts.Worst(name, worstEach)...)
	}
	return worst
}

// read returns the counts now.
func (u *UI) read() reading {
	families, _ := u.opts.Metrics.Gather() // what a part of the metrics can't tell is missing here
	return newReading(u.opts.Now(), families)
}
