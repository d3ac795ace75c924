package api

import (
	"net"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/connections"
)

// Names of the rooms that a program which serves the API needs: it imports this package alone.
type (
	// Bound is connections.Bound.
	Bound = connections.Bound
	// Connections is connections.Listener.
	Connections = connections.Listener
	// HeaderFamilies is encode.HeaderFamilies.
	HeaderFamilies = encode.HeaderFamilies
)

// The defaults of a program's flags.
const (
	DefaultMaxConnections = connections.DefaultMost
	HeadersDefault        = encode.HeadersDefault
)

// LimitConnections is connections.Limit.
func LimitConnections(server *http.Server, listener net.Listener, most int, reached func(Bound)) *Connections {
	return connections.Limit(server, listener, most, reached)
}

// ParseHeaders is encode.ParseHeaders.
func ParseHeaders(text string) (HeaderFamilies, error) { return encode.ParseHeaders(text) }

// ForPeople is encode.ForPeople.
func ForPeople(milliseconds int64) string { return encode.ForPeople(milliseconds) }
