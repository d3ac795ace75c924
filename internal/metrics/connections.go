package metrics

import "github.com/prometheus/client_golang/prometheus"

// Connections are the metrics of the connections to a gRPC listener. Make it with NewEnvoyConnections or
// NewPeerConnections.
type Connections[B ~string] struct{ turned *prometheus.CounterVec }

// NewEnvoyConnections returns metrics of Envoy's connections that are registered with reg: how many are open,
// as open says, and what each of bounds turned away.
func NewEnvoyConnections[B ~string](reg prometheus.Registerer, open func() int, bounds []B) *Connections[B] {
	return newConnections(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_envoy_turned_away_total",
		Help: "What the bound of Envoy's connections turned away: connections refused, idle ones closed for new ones.",
	}, []string{"bound"}), prometheus.GaugeOpts{
		Name: "ratelimitd_envoy_connections",
		Help: "Connections of Envoy that are open.",
	}, open, bounds)
}

// NewPeerConnections is NewEnvoyConnections for those to --peer-listen.
func NewPeerConnections[B ~string](reg prometheus.Registerer, open func() int, bounds []B) *Connections[B] {
	return newConnections(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_peer_turned_away_total",
		Help: "What the bounds of connections to --peer-listen turned away: connections refused, idle ones closed for new ones.",
	}, []string{"bound"}), prometheus.GaugeOpts{
		Name: "ratelimitd_peer_connections",
		Help: "Connections to --peer-listen that are open, those of strangers included.",
	}, open, bounds)
}

func newConnections[B ~string](
	reg prometheus.Registerer, turned *prometheus.CounterVec, gauge prometheus.GaugeOpts, open func() int, bounds []B,
) *Connections[B] {
	c := &Connections[B]{turned: turned}
	for _, bound := range bounds {
		c.turned.WithLabelValues(string(bound)) // so that a rate has a zero to start from
	}
	reg.MustRegister(c.turned, prometheus.NewGaugeFunc(gauge, func() float64 { return float64(open()) }))
	return c
}

// TurnAway counts what bound, one of those that were given, turned away.
func (c *Connections[B]) TurnAway(bound B) { c.turned.WithLabelValues(string(bound)).Inc() }
