package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// NewHTTPConnections registers metrics of the connections of clients with reg: the number that open returns, and the
// connections and requests turned away by each of bounds, as reported to turnedAway.
func NewHTTPConnections[B ~string](reg prometheus.Registerer, open func() int, bounds []B) (turnedAway func(B)) {
	auto := factory{promauto.With(reg)}
	auto.number("ratelimitd_http_connections", "Open connections of clients to the API and to the proxy.", open)
	return countBounds(auto.counters("ratelimitd_http_turned_away_total",
		"Connections and requests turned away by a bound: connections refused, idle ones closed for new ones, requests with "+
			"large bodies, and requests to a proxy that has no room.",
		"bound"), bounds)
}

// NewEnvoyConnections is NewHTTPConnections for connections of Envoy.
func NewEnvoyConnections[B ~string](reg prometheus.Registerer, open func() int, bounds []B) (turnedAway func(B)) {
	auto := factory{promauto.With(reg)}
	auto.number("ratelimitd_envoy_connections", "Open connections of Envoy.", open)
	return countBounds(auto.counters("ratelimitd_envoy_turned_away_total",
		"Connections of Envoy turned away by a bound: refused, or closed while idle to make room for new ones.",
		"bound"), bounds)
}

// NewPeerConnections is NewHTTPConnections for connections to --peer-listen.
func NewPeerConnections[B ~string](reg prometheus.Registerer, open func() int, bounds []B) (turnedAway func(B)) {
	auto := factory{promauto.With(reg)}
	auto.number("ratelimitd_peer_connections", "Open connections to --peer-listen, including those that are not of instances.", open)
	return countBounds(auto.counters("ratelimitd_peer_turned_away_total",
		"Connections to --peer-listen turned away by a bound: refused, or closed while idle to make room for new ones.",
		"bound"), bounds)
}

// countBounds returns a function that counts connections and requests turned away by one of bounds.
func countBounds[B ~string](turned *prometheus.CounterVec, bounds []B) func(B) {
	for _, bound := range bounds {
		turned.WithLabelValues(string(bound)) // so that a rate has a zero to start from
	}
	return func(bound B) { turned.WithLabelValues(string(bound)).Inc() }
}
