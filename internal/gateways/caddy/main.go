// Command caddy is Caddy with its standard modules, as its own releases are. It is a module
// of its own, so that nothing of Caddy is among what ratelimitd needs.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard" // all that the Caddyfile may name
)

func main() { caddycmd.Main() }
