package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/ratelimitd/ratelimitd/internal/events"
)

// Events are the metrics of events that are sent to a receiver. Make it with NewEvents.
type Events struct {
	total    *prometheus.CounterVec // kind, outcome
	failures *prometheus.CounterVec // kind
}

// NewEvents returns metrics registered with reg: of events of all kinds, and the number that waiting returns.
func NewEvents(reg prometheus.Registerer, waiting func() int) *Events {
	auto := factory{promauto.With(reg)}
	e := &Events{
		total: auto.counters("ratelimitd_events_total",
			"Events by kind and outcome: sent, if the receiver accepted them, or lost.", "kind", "outcome"),
		failures: auto.counters("ratelimitd_event_failures_total", "Failed attempts to send an event. They are retried.", "kind"),
	}
	for _, kind := range events.Kinds { // so that rates have a zero to start from
		e.of(kind, events.Sent)
		e.of(kind, events.Lost)
		e.of(kind, events.Failed)
	}
	auto.number("ratelimitd_events_waiting", "Events waiting to be sent.", waiting)
	return e
}

// of returns the counter of an outcome.
func (e *Events) of(kind events.Kind, became events.Outcome) prometheus.Counter {
	switch became {
	case events.Sent:
		return e.total.WithLabelValues(string(kind), "sent")
	case events.Lost:
		return e.total.WithLabelValues(string(kind), "lost")
	}
	return e.failures.WithLabelValues(string(kind))
}

// Observe counts an event that was sent or lost, or an attempt that failed.
func (e *Events) Observe(kind events.Kind, became events.Outcome) { e.of(kind, became).Inc() }
