package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// NewEnvoyConnections registers metrics of Envoy's connections with reg: how many are open, as open says, and what each of
// bounds turned away, which turnedAway is to be told.
func NewEnvoyConnections[B ~string](reg prometheus.Registerer, open func() int, bounds []B) (turnedAway func(B)) {
	auto := factory{promauto.With(reg)}
	auto.number("ratelimitd_envoy_connections", "Connections of Envoy that are open.", open)
	return countBounds(auto.counters("ratelimitd_envoy_turned_away_total",
		"What the bound of Envoy's connections turned away: connections refused, idle ones closed for new ones.",
		"bound"), bounds)
}

// NewPeerConnections is NewEnvoyConnections for those to --peer-listen.
func NewPeerConnections[B ~string](reg prometheus.Registerer, open func() int, bounds []B) (turnedAway func(B)) {
	auto := factory{promauto.With(reg)}
	auto.number("ratelimitd_peer_connections", "Connections to --peer-listen that are open, those of strangers included.", open)
	return countBounds(auto.counters("ratelimitd_peer_turned_away_total",
		"What the bounds of connections to --peer-listen turned away: connections refused, idle ones closed for new ones.",
		"bound"), bounds)
}

// countBounds returns a function that counts in turned that one of bounds was reached.
func countBounds[B ~string](turned *prometheus.CounterVec, bounds []B) func(B) {
	for _, bound := range bounds {
		turned.WithLabelValues(string(bound)) // so that a rate has a zero to start from
	}
	return func(bound B) { turned.WithLabelValues(string(bound)).Inc() }
}
