package httplimit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
)

// Identify returns the identifier of a request's sender, empty if it is not known.
type Identify func(*http.Request) string

// separator is between the parts of what Combine identifies.
const separator = "\n"

// Header identifies by a header that the service itself, or a proxy in front of it, trusts. A
// header that is sent twice identifies nobody. A value that could pass for an address is marked, so
// that nobody uses up the limit of that address.
func Header(name string) Identify { return origin.Header(name).Name }

// APIKey identifies by X-API-Key, or by the token of "Authorization: Bearer". A request with both identifies nobody:
// the service behind uses one of them, and a client that made up a new value of the other for each request would have a
// limit for each.
func APIKey() Identify { return origin.APIKey().Name }

// User identifies by the user name of basic authentication, which the service must have
// checked. It knows no name with a line break in it: addresses are marked by one.
func User() Identify { return origin.User().Name }

// Path identifies by the path, so that all requests for it share a limit.
func Path() Identify { return func(r *http.Request) string { return r.URL.Path } }

// Combine identifies by several together, such as the address and the path. Its identifier is
// empty if one of theirs is, or if the first part is "ip", "all", "sha256" or "name", which mark
// other identifiers.
func Combine(all ...Identify) Identify {
	return func(r *http.Request) string {
		parts := make([]string, len(all))
		for i, identify := range all {
			if parts[i] = identify(r); parts[i] == "" {
				return ""
			}
		}
		switch parts[0] + separator {
		case origin.Unidentified, origin.Everybody, origin.Hashed, origin.Named: // it would pass for another
			return ""
		}
		return strings.Join(parts, separator)
	}
}

// IP identifies by the client's address: that of the connection or, while that is one of trusted, the one that it
// forwards for by X-Forwarded-For. Of IPv6, a /64 is one client, and an address that stands for one of IPv4 is that
// one. It identifies nobody if one of trusted forwards something other than an address.
func IP(trusted ...netip.Prefix) Identify {
	return func(r *http.Request) string {
		address, _ := origin.Proxies(trusted).Client(r) // empty where it is hidden
		return address
	}
}
