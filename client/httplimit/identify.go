package httplimit

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/origin"
)

// Identify returns who sent a request, empty if that is not known.
type Identify func(*http.Request) string

// separator is between the parts of what Both identifies.
const separator = "\n"

// Header identifies by a header that the service itself, or who is in front of it, trusts.
func Header(name string) Identify {
	return func(r *http.Request) string { return r.Header.Get(name) }
}

// APIKey identifies by X-API-Key, or by the token of "Authorization: Bearer". It knows
// nobody by both: the service goes by one of them, and whoever makes up the other anew for
// each request would have a limit for each.
func APIKey() Identify {
	return func(r *http.Request) string {
		key := r.Header.Get("X-Api-Key")
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		switch {
		case !strings.EqualFold(scheme, "Bearer"):
			return key
		case key != "":
			return ""
		}
		return strings.TrimSpace(token)
	}
}

// User identifies by the user name of basic authentication, which the service must have
// checked. It knows none with a line break in it, which is what addresses are marked by.
func User() Identify {
	return func(r *http.Request) string {
		name, _, _ := r.BasicAuth()
		if strings.Contains(name, separator) {
			return ""
		}
		return name
	}
}

// Path identifies by the path, so that all who ask for it share a limit.
func Path() Identify { return func(r *http.Request) string { return r.URL.Path } }

// Both identifies by all of several together, such as the address and the path. It knows
// nobody whom one of them does not know, or whose first part is "ip", "all" or "sha256", by
// which others are marked.
func Both(all ...Identify) Identify {
	return func(r *http.Request) string {
		parts := make([]string, len(all))
		for i, identify := range all {
			if parts[i] = identify(r); parts[i] == "" {
				return ""
			}
		}
		switch parts[0] + separator {
		case origin.Unidentified, origin.Everybody, origin.Hashed: // it would pass for another
			return ""
		}
		return strings.Join(parts, separator)
	}
}

// IP identifies by the client's address: that of the connection or, while that is one of
// trusted, the one that it forwards for by X-Forwarded-For. Of IPv6, a /64 is one client.
func IP(trusted ...netip.Prefix) Identify { return origin.Proxies(trusted).Client }
