package events

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// lookEvery is the interval at which a Watcher looks, and looks the number of looks in a minute.
	lookEvery = 5 * time.Second
	looks     = int(time.Minute / lookEvery)
	// leastCalls is the least number of calls within a minute on which denials of a policy are judged.
	leastCalls = 20
	// hysteresis is the part of DeniedShare below which denials have ended.
	hysteresis = 0.8
	// degradedLasts and conversionLasts are the times after the last degraded decision, and the last denial of a key by a
	// conversion limit, after which that has ended.
	degradedLasts   = time.Minute
	conversionLasts = 5 * time.Minute
	// maxDenied is the maximum of keys that conversion limits deny at the same time, of some 300 bytes each. There are no
	// events for others.
	maxDenied = 4096
)

// Tally has the counts of the checks and takes of a policy since it came into force. It only grows.
type Tally struct {
	Calls    int64 // that were decided
	Denied   int64 // of these
	Degraded int64 // decisions by on_store_error
}

// Watcher sends an event when a condition begins and when it ends: denials by conversion limits, policies that deny a
// large share of calls, and degraded decisions. A nil Watcher sends nothing. Make one with NewWatcher.
type Watcher struct {
	sender *Sender
	share  float64 // threshold of denied calls

	mu     sync.Mutex
	denied map[deniedKey]*denial

	// used by Look only:
	look     int
	policies map[string]*trend
	degraded *Degraded // nil: none are
	last     time.Time // when some were
}

// deniedKey is a key that a conversion limit denies.
type deniedKey struct{ policy, limit, key string }

type denial struct {
	of          Conversion
	since, last time.Time
	calls       int64
}

// trend has the outcomes of the calls of one policy within the last minute.
type trend struct {
	tally Tally
	of    [looks]Tally
	since time.Time // when too many were denied first; zero: they are not
}

// NewWatcher returns a Watcher that sends by sender. deniedShare is the share of denied calls within a minute, above 0
// and up to 1, from which on it sends an event.
func NewWatcher(sender *Sender, deniedShare float64) *Watcher {
	return &Watcher{sender: sender, share: deniedShare, denied: make(map[deniedKey]*denial), policies: make(map[string]*trend)}
}

// Denied notes a denial by a conversion limit.
func (w *Watcher) Denied(c Conversion) {
	now, at := w.sender.opts.Now(), deniedKey{c.Policy, c.Limit, c.Key}
	w.mu.Lock()
	d := w.denied[at]
	full := d == nil && len(w.denied) >= maxDenied
	fresh := d == nil && !full
	if fresh {
		d = &denial{of: c, since: now}
		w.denied[at] = d
	}
	if d != nil {
		d.last, d.calls = now, d.calls+1
	}
	w.mu.Unlock()
	switch {
	case fresh:
		w.sender.Tell(ConversionBegan, c)
	case full:
		w.sender.lose(KindConversion, 1, errFull)
	}
}

// Run calls Look with tallies, by policy, every five seconds until ctx ends. It returns nil.
func (w *Watcher) Run(ctx context.Context, tallies func() map[string]Tally) error {
	if w == nil {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.Look(tallies())
		}
	}
}

// Look sends events for conditions that have begun or ended since the last call, some five seconds ago.
func (w *Watcher) Look(tallies map[string]Tally) {
	now := w.sender.opts.Now()
	w.endConversions(now)
	w.look = (w.look + 1) % looks
	degraded := make(map[string]int64)
	for name, tally := range tallies {
		t := w.policies[name]
		if t == nil {
			t = new(trend)
			w.policies[name] = t
		}
		grown := tally.since(t.tally)
		t.tally, t.of[w.look] = tally, grown
		if grown.Degraded > 0 {
			degraded[name] = grown.Degraded
		}
		w.judge(name, t, now)
	}
	for name, t := range w.policies {
		if _, inForce := tallies[name]; !inForce {
			w.end(name, t)
			delete(w.policies, name)
		}
	}
	w.noteDegraded(degraded, now)
}

// since returns the increase since before, or t if it started again.
func (t Tally) since(before Tally) Tally {
	if t.Calls < before.Calls || t.Denied < before.Denied || t.Degraded < before.Degraded {
		return t
	}
	return Tally{t.Calls - before.Calls, t.Denied - before.Denied, t.Degraded - before.Degraded}
}

// lately returns the counts of the last minute.
func (t *trend) lately() (sum Tally) {
	for _, of := range t.of {
		sum.Calls, sum.Denied = sum.Calls+of.Calls, sum.Denied+of.Denied
	}
	return sum
}

// judge sends an event if a policy begins or ceases to deny too many calls.
func (w *Watcher) judge(name string, t *trend, now time.Time) {
	lately := t.lately()
	switch calls, denied := float64(lately.Calls), float64(lately.Denied); {
	case t.since.IsZero() && lately.Calls >= leastCalls && denied >= w.share*calls:
		t.since = now
		w.sender.Tell(DenialsBegan, w.denials(name, lately))
	case !t.since.IsZero() && (lately.Calls == 0 || denied < hysteresis*w.share*calls):
		w.end(name, t)
	}
}

// end sends an event if a policy denied too many calls and does not any more.
func (w *Watcher) end(name string, t *trend) {
	if t.since.IsZero() {
		return
	}
	told := w.denials(name, t.lately())
	told.Since = instant(t.since)
	t.since = time.Time{}
	w.sender.Tell(DenialsEnded, told)
}

func (w *Watcher) denials(policy string, lately Tally) Denials {
	return Denials{Policy: policy, Calls: lately.Calls, Denied: lately.Denied, Percent: int64(w.share*100 + 0.5)}
}

// noteDegraded notes the degraded decisions by policy since the last look.
func (w *Watcher) noteDegraded(degraded map[string]int64, now time.Time) {
	switch {
	case len(degraded) > 0 && w.degraded == nil:
		w.degraded, w.last = &Degraded{Since: *instant(now), Policies: degraded}, now
		w.sender.Tell(DegradedBegan, Degraded{w.degraded.Since, maps.Clone(degraded)})
	case len(degraded) > 0:
		for name, n := range degraded {
			w.degraded.Policies[name] += n
		}
		w.last = now
	case w.degraded != nil && now.Sub(w.last) >= degradedLasts:
		w.sender.Tell(DegradedEnded, *w.degraded)
		w.degraded = nil
	}
}

// endConversions sends events for keys that conversion limits do not deny any more, in the order of their first denial.
func (w *Watcher) endConversions(now time.Time) {
	var ended []Conversion
	w.mu.Lock()
	for at, d := range w.denied {
		if now.Sub(d.last) >= conversionLasts {
			delete(w.denied, at)
			d.of.Since, d.of.Denied = instant(d.since), d.calls
			ended = append(ended, d.of)
		}
	}
	w.mu.Unlock()
	slices.SortFunc(ended, func(a, b Conversion) int { return a.Since.Compare(*b.Since) })
	for _, c := range ended {
		w.sender.Tell(ConversionEnded, c)
	}
}

// instant returns at in the form of events.
func instant(at time.Time) *time.Time { return new(at.UTC().Truncate(time.Millisecond)) }
