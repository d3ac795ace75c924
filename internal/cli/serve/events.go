package serve

import (
	"context"
	"encoding/hex"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/events"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// eventSource sends the events that decisions cause. The zero value sends none.
type eventSource struct {
	sender    *events.Sender  // nil: events are not sent
	watcher   *events.Watcher // nil: nothing is watched
	countryOf func(policy string, key store.Key) string
	named     atomic.Pointer[map[string]map[store.Key]string] // identifiers that policies name, by policy; nil: none
}

// openEvents makes the sender of events, if the settings name a receiver. The audit log is open.
func (s *service) openEvents() error {
	given := &s.settings.Events
	secrets, err := given.Secrets(s.log)
	if err != nil || given.URL == nil {
		return err
	}
	if given.URL.Scheme == "http" && !isLoopback(hostPort(given.URL)) {
		s.log.Warn("events travel in the clear, with keys and names of policies: use an https URL, unless a proxy in between speaks TLS",
			"flag", "--events-url")
	}
	var measured *metrics.Events
	sender := events.New(events.Options{
		URL: given.URL.String(), Secrets: secrets, Log: s.log,
		Source: "/ratelimitd/" + url.PathEscape(s.settings.Namespace), Self: s.instanceName, Agent: "ratelimitd/" + s.process.Version,
		Observe: func(kind events.Kind, became events.Outcome) { measured.Observe(kind, became) },
	})
	measured = metrics.NewEvents(s.registry, sender.Waiting)
	s.events.sender, s.events.watcher = sender, events.NewWatcher(sender, given.DeniedShare)
	s.events.countryOf = s.measured.CountryOf
	s.audit.tee(sender.AuditLine)
	s.log.Info("sending events", "to", given.URL.Host)
	return nil
}

// hostPort returns the address of u as isLoopback takes it.
func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":80"
	}
	return u.Host
}

// runWatcher watches for events that begin and end, until ctx ends.
func (s *service) runWatcher(ctx context.Context) error {
	return s.events.watcher.Run(ctx, s.measured.Tallies)
}

// keyDigits is the number of hex digits of a key in an event, the same as in the audit log.
const keyDigits = 16

func digitsOf(key store.Key) string { return hex.EncodeToString(key.Bytes())[:keyDigits] }

// decided notes a denial by a conversion limit.
func (e *eventSource) decided(key store.Key, d *count.Decision) {
	if !d.Allowed && !d.Blocked && !d.Degraded && d.Reason == "" {
		e.relented(key, d)
	}
}

// relented notes a denial by a conversion limit in a call that its policy of known callers admitted.
func (e *eventSource) relented(key store.Key, d *count.Decision) {
	if e.watcher == nil {
		return
	}
	for i := range d.Limits() {
		l := &d.Limits()[i]
		if l.Limit.Algorithm == policy.Conversion.Name && !l.Allowed && !l.Limit.Shadow {
			e.watcher.Denied(events.Conversion{
				Policy: d.Policy.Name, Limit: l.Limit.Name, Key: digitsOf(key),
				Country: e.countryOf(d.Policy.Name, key), Name: e.nameOf(d.Policy.Name, key),
			})
		}
	}
}

// setPolicies remembers the identifiers that policies with conversions name, so that events can show them. It does
// nothing on a nil e.
func (e *eventSource) setPolicies(policies []*policy.Policy, keyOf func(policy string, id keys.Identifier) (store.Key, error)) {
	if e == nil || e.sender == nil {
		return
	}
	named := make(map[string]map[store.Key]string)
	for _, p := range policies {
		if !slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.Algorithm == policy.Conversion.Name }) {
			continue
		}
		named[p.Name] = make(map[store.Key]string)
		for _, name := range p.ByValues() {
			if key, err := keyOf(p.Name, keys.Identifier(name)); err == nil {
				named[p.Name][key] = name
			}
		}
	}
	e.named.Store(&named)
}

// nameOf returns the identifier of key if the policy names it, else an empty string.
func (e *eventSource) nameOf(policy string, key store.Key) string {
	if named := e.named.Load(); named != nil {
		return (*named)[policy][key]
	}
	return ""
}

// blocked sends an event about a new block.
func (e *eventSource) blocked(policy string, key store.Key, until store.Instant, strikes int) {
	at := until.Time().UTC()
	e.sender.TellForAll(events.BlockMade, events.Block{Policy: policy, Key: digitsOf(key), EndsAt: &at, Strikes: strikes})
}

// unblocked sends an event about a block that a reset ended.
func (e *eventSource) unblocked(policy string, key store.Key) {
	e.sender.TellForAll(events.BlockEnded, events.Block{Policy: policy, Key: digitsOf(key)})
}
