package httplimit

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
)

// SkipPaths returns an Options.Skip for these paths, and for all paths below those that end in a slash. It does not
// skip a path with . or .. in it, which may lead elsewhere.
func SkipPaths(paths ...string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if leadsAway(r.URL.Path) {
			return false
		}
		for _, path := range paths {
			if r.URL.Path == path || strings.HasSuffix(path, "/") && strings.HasPrefix(r.URL.Path, path) {
				return true
			}
		}
		return false
	}
}

func leadsAway(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}

// SkipIdentifiers returns an Options.Skip for requests for which by returns one of these identifiers, such as the API
// keys of one's own services.
func SkipIdentifiers(by Identify, identifiers ...string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		is := strings.TrimPrefix(by(r), origin.Named)
		return is != "" && slices.Contains(identifiers, is)
	}
}

// SkipNetworks returns an Options.Skip for requests from addresses in one of these networks. by returns the address:
// IP, with the trusted proxies. Of an IPv6 address, only the /64 is known.
func SkipNetworks(by Identify, networks ...netip.Prefix) func(*http.Request) bool {
	return func(r *http.Request) bool {
		who := strings.TrimPrefix(by(r), origin.Named) // of a header with an address
		is, err := netip.ParsePrefix(who)
		if err != nil {
			address, err := netip.ParseAddr(who)
			if err != nil {
				return false
			}
			is = netip.PrefixFrom(address, address.BitLen())
		}
		is = origin.Unmapped(is)
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool {
			n = origin.Unmapped(n)
			return n.Bits() <= is.Bits() && n.Contains(is.Addr())
		})
	}
}

// SkipAny returns an Options.Skip for all requests that any of these skips.
func SkipAny(skips ...func(*http.Request) bool) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return slices.ContainsFunc(skips, func(skip func(*http.Request) bool) bool { return skip(r) })
	}
}
