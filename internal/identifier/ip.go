package identifier

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// network is an IP address or a network.
type network struct{ origin.Network }

var errIP = errors.New("not an IP address: send one such as 203.0.113.7 or 2001:db8::1, without a port")

// readNetwork reads an address, or a network from a caller that has cut the address already. IPv4 mapped into IPv6 becomes
// IPv4, and a zone is removed, because it has a meaning on one machine only.
func readNetwork(given string) (network, error) {
	given = strings.TrimSpace(strings.TrimPrefix(given, origin.Named)) // of a header that holds addresses
	var prefix netip.Prefix
	var err error
	if strings.Contains(given, "/") {
		prefix, err = netip.ParsePrefix(given)
	} else {
		var address netip.Addr
		address, err = netip.ParseAddr(given)
		prefix = netip.PrefixFrom(address, address.BitLen()) // without the zone
	}
	if err != nil {
		return network{}, errIP
	}
	return network{origin.NetworkOf(prefix)}, nil
}

// readNetwork64 reads an address. Of an IPv6 address it returns the customer's network.
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
