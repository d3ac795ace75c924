// Package gateways holds the examples of nginx, Caddy and Traefik to what
// docs/howto/gateways.md says of them: by a real nginx, by a real Caddy that is built from its module in ./caddy,
// and by what Traefik's documentation says. That of Envoy it holds to docs/howto/envoy.md
// by a real Envoy, where there is one.
package gateways
