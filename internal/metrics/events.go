package metrics

import "github.com/prometheus/client_golang/prometheus"

// Events are the metrics of events that are sent to a receiver. Make it with NewEvents.
type Events struct {
	total    *prometheus.CounterVec // kind, outcome
	failures *prometheus.CounterVec // kind
}

// The outcomes of events.
const (
	EventSent = "sent"
	EventLost = "lost"
)

// NewEvents returns metrics that are registered with reg: of events of these kinds, and how many wait, as waiting says.
func NewEvents(reg prometheus.Registerer, kinds []string, waiting func() int) *Events {
	e := &Events{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_events_total",
			Help: "Events by kind and outcome: sent, and the receiver took them; or lost, and nobody is told of them.",
		}, []string{"kind", "outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_event_failures_total",
			Help: "Attempts to send an event that failed, and are repeated.",
		}, []string{"kind"}),
	}
	for _, kind := range kinds { // so that rates have a zero to start from
		e.total.WithLabelValues(kind, EventSent)
		e.total.WithLabelValues(kind, EventLost)
		e.failures.WithLabelValues(kind)
	}
	reg.MustRegister(e.total, e.failures, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_events_waiting",
		Help: "Events that wait to be sent.",
	}, func() float64 { return float64(waiting()) }))
	return e
}

// Ended counts an event that was sent or lost.
func (e *Events) Ended(kind, outcome string) { e.total.WithLabelValues(kind, outcome).Inc() }

// Failed counts an attempt that failed.
func (e *Events) Failed(kind string) { e.failures.WithLabelValues(kind).Inc() }
