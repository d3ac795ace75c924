// Package gateways tests the examples of nginx, Caddy and Traefik against docs/howto/gateways.md: with a real nginx, a
// real Caddy that is built from its module in ./caddy, and the behaviour that Traefik documents. It tests the example of
// Envoy against docs/howto/envoy.md with a real Envoy, where there is one.
package gateways
