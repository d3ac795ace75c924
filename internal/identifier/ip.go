package identifier

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// network is an IP address that was read, or a network.
type network struct{ origin.Network }

var errIP = errors.New("not an IP address: send one such as 203.0.113.7 or 2001:db8::1, without a port")

// readNetwork reads an address, or a network if the caller has cut the address already. IPv4 mapped into IPv6 becomes IPv4,
// and a zone is dropped, because it has a meaning on its own machine only.
func readNetwork(given string) (network, error) {
	given = strings.TrimSpace(strings.TrimPrefix(given, origin.Named)) // of a header that holds addresses
	if strings.Contains(given, "/") {
		return readPrefix(given)
	}
	address, err := netip.ParseAddr(given)
	if err != nil {
		return network{}, errIP
	}
	return network{origin.NetworkOf(netip.PrefixFrom(address, address.BitLen()))}, nil // without the zone
}

func readPrefix(given string) (network, error) {
	p, err := netip.ParsePrefix(given)
	if err != nil {
		return network{}, errIP
	}
	return network{origin.NetworkOf(p)}, nil
}

// readNetwork64 reads an address, of IPv6 the network of the customer that it belongs to.
func readNetwork64(given string) (network, error) {
	n, err := readNetwork(given)
	return network{n.Customer()}, err
}

// part returns the network that n is in.
func (n network) part(d *policy.Derivation) string {
	if n.Is4() {
		return n.Within(d.IPv4Bits).String()
	}
	return n.Within(d.IPv6Bits).String()
}
