package limiter

import "time"

// WithJitter returns o with the random waits that jitter gives, so that they can be
// replayed.
func (o Options) WithJitter(jitter func(below time.Duration) time.Duration) *Options {
	o.jitter = jitter
	return &o
}

// DatedAt returns the instant that d's units are dated at; 0 when it is told again, or
// they are in several places.
func (d *Decision) DatedAt() Instant { return d.entry.at }
