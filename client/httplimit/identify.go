package httplimit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
)

// Identify returns the identifier of a request's sender, empty if it is not known.
type Identify func(*http.Request) string

// separator separates the parts of a combined identifier.
const separator = "\n"

// Header identifies by a header that the service itself, or a proxy in front of it, trusts. A header that is sent twice
// identifies nobody. A value that looks like an address is marked, so that it can't use up the limit of that address.
func Header(name string) Identify { return origin.Header(name).Name }

// APIKey identifies by X-API-Key, or by the token of "Authorization: Bearer". A request with both identifies nobody:
// the service behind uses only one of them, and a client that made up the other for each request would get a new limit
// each time.
func APIKey() Identify { return origin.APIKey().Name }

// User identifies by the user name of basic authentication, which the service must have checked. It ignores a name with
// a line break, as a line break marks addresses.
func User() Identify { return origin.User().Name }

// Path identifies by the path, so that all requests for it share a limit.
func Path() Identify { return func(r *http.Request) string { return r.URL.Path } }

// Combine identifies by several values together, such as the address and the path. Its identifier is empty if one of
// theirs is, or if the first part is "ip", "all", "sha256" or "name", which mark other identifiers.
func Combine(all ...Identify) Identify {
	return func(r *http.Request) string {
		parts := make([]string, len(all))
		for i, identify := range all {
			if parts[i] = identify(r); parts[i] == "" {
				return ""
			}
		}
		switch parts[0] + separator {
		case origin.Unidentified, origin.Everybody, origin.Hashed, origin.Named: // it would look like one of those
			return ""
		}
		return strings.Join(parts, separator)
	}
}

// IP identifies by the client's address: that of the connection or, if that is in trusted, the one that X-Forwarded-For
// gives. A /64 of IPv6 is one client, and an address that stands for one of IPv4 is that one. If a trusted proxy
// forwards something other than an address, IP identifies nobody.
func IP(trusted ...netip.Prefix) Identify {
	return func(r *http.Request) string {
		address, _ := origin.Proxies(trusted).Client(r) // empty if it is hidden
		return address
	}
}
