package identifier

import (
	"errors"
	"net/netip"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/origin"
)

// network is an IP address that was read, as the network of it alone, or a network.
type network netip.Prefix

// String returns the address or, of more than one, the network.
func (n network) String() string {
	if p := netip.Prefix(n); !p.IsSingleIP() {
		return p.String()
	}
	return netip.Prefix(n).Addr().String()
}

// subnet is what a customer has of IPv6 addresses at least: one may use as many of it as
// they like.
const subnet = 64

var errIP = errors.New("not an IP address: send one such as 203.0.113.7 or 2001:db8::1, without a port")

// readNetwork reads an address, or a network for one: who asks may have cut it already. What
// stands for IPv4 in IPv6 is IPv4, and a zone says nothing to others than its machine.
func readNetwork(given string) (network, error) {
	given = strings.TrimSpace(strings.TrimPrefix(given, origin.Named)) // of a header that holds addresses
	if strings.Contains(given, "/") {
		return readPrefix(given)
	}
	address, err := netip.ParseAddr(given)
	if err != nil {
		return network{}, errIP
	}
	return network(unwrap(netip.PrefixFrom(address, address.BitLen()))), nil // without the zone
}

func readPrefix(given string) (network, error) {
	p, err := netip.ParsePrefix(given)
	if err != nil {
		return network{}, errIP
	}
	return network(unwrap(p)), nil
}

// readNetwork64 reads an address, of IPv6 the network of 64 bits that it is in.
func readNetwork64(given string) (network, error) {
	n, err := readNetwork(given)
	if err != nil || netip.Prefix(n).Addr().Is4() {
		return n, err
	}
	return n.within(subnet), nil
}

// within returns the network of so many bits that n is in; n where it has no more.
func (n network) within(bits int) network {
	p := netip.Prefix(n)
	if p.Bits() <= bits {
		return n
	}
	return network(netip.PrefixFrom(p.Addr(), bits).Masked())
}

// part returns the network that n is in.
func (n network) part(d *policy.Derivation) string {
	if netip.Prefix(n).Addr().Is4() {
		return n.within(d.IPv4Bits).String()
	}
	return n.within(d.IPv6Bits).String()
}
