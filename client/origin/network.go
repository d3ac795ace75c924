package origin

import "net/netip"

// Network is an IP address, or a network of them. Make one with NetworkOf.
type Network struct{ prefix netip.Prefix }

// NetworkOf returns the network p or, if p is within IPv6 but stands for IPv4, the network of IPv4. For 6to4 and
// Teredo, that is the end of the tunnel.
func NetworkOf(p netip.Prefix) Network { return Network{unwrap(p.Masked())} }

// CallerOf returns the identifier of a caller with this address, with a port or without. It returns text that is not an
// address unchanged.
func CallerOf(text string) string {
	if address, err := netip.ParseAddr(text); err == nil && address.Is4() {
		return text
	}
	address, ok := parseAddress(text)
	if !ok {
		return text
	}
	return caller(address)
}

func caller(address netip.Addr) string {
	if address.Is4() {
		return address.String()
	}
	return NetworkOf(netip.PrefixFrom(address, address.BitLen())).Customer().String()
}

// String returns the address, or the network if there are more than one.
func (n Network) String() string {
	if n.prefix.IsSingleIP() {
		return n.prefix.Addr().String()
	}
	return n.prefix.String()
}

// Is4 reports whether n is within IPv4.
func (n Network) Is4() bool { return n.prefix.Addr().Is4() }

// customerBits is the length of the smallest IPv6 network that a customer gets, who can use any number of its
// addresses.
const customerBits = 64

// Customer returns the network of the one customer that uses n: a /64 of IPv6. An address for local NAT64 stands for
// one address of IPv4, at a position that is not known, and is returned whole.
func (n Network) Customer() Network {
	if n.Is4() || nat64Local.Contains(n.prefix.Addr()) {
		return n
	}
	return n.Within(customerBits)
}

// Within returns the network of so many bits that contains n, or n if it has no more bits.
func (n Network) Within(bits int) Network {
	if n.prefix.Bits() <= bits {
		return n
	}
	return Network{netip.PrefixFrom(n.prefix.Addr(), bits).Masked()}
}

// Networks of IPv6 in which each address stands for one of IPv4, in its last 32 bits in most cases. A network of 64
// bits would count all of IPv4 as one client.
var (
	mapped     = netip.MustParsePrefix("::ffff:0:0/96")   // RFC 4291, section 2.5.5.2
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765, section 2.1
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291, section 2.5.5.1; :: and ::1 are none
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052, section 2.1
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215: prefixes of 96 bits, and of other lengths
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056, section 2
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380, section 4
)

// Positions of the 32 bits of IPv4.
const (
	atEnd       = 96
	atSixToFour = 16
)

// unwrap returns the network of IPv4 that p, which is masked, stands for, and p if it stands for none.
func unwrap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4() {
		return p
	}
	b := p.Addr().As16()
	within := func(n netip.Prefix) bool { return n.Contains(p.Addr()) }
	switch {
	case p.Bits() >= atSixToFour && within(sixToFour):
		return cut(b[2:6], p.Bits()-atSixToFour)
	case p.Bits() < atEnd:
		return p
	case within(mapped), within(translated), within(nat64), within(compatible) && b[12] != 0,
		within(nat64Local) && [4]byte(b[8:12]) == [4]byte{}:
		return cut(b[12:], p.Bits()-atEnd)
	case within(teredo):
		for i := 12; i < len(b); i++ {
			b[i] ^= 0xff
		}
		return cut(b[12:], p.Bits()-atEnd)
	}
	return p
}

// cut returns the network of so many bits that contains ip, of four bytes.
func cut(ip []byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(ip)), min(bits, limitOfIPv4)).Masked()
}

// limitOfIPv4 is the number of bits in an address of IPv4: in 6to4, more follow.
const limitOfIPv4 = 32

// Unmapped returns p as a network of IPv4 if it has IPv4-mapped addresses, which are other notations of the same
// machines. Tunnels and translators are machines of their own, so a network of IPv4 does not contain the addresses for
// which they forward.
func Unmapped(p netip.Prefix) netip.Prefix {
	if !p.Addr().Is4In6() || p.Bits() < atEnd {
		return p
	}
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-atEnd)
}
