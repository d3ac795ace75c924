package identifier

import "net/netip"

// Networks of IPv6 in which each address stands for one of IPv4. All of IPv4 fits into the
// last 32 bits, where a network of 64 bits would count everybody as one.
var (
	mapped     = netip.MustParsePrefix("::ffff:0:0/96")   // RFC 4291, section 2.5.5.2
	translated = netip.MustParsePrefix("::ffff:0:0:0/96") // RFC 2765, section 2.1
	compatible = netip.MustParsePrefix("::/96")           // RFC 4291, section 2.5.5.1; :: and ::1 are none
	nat64      = netip.MustParsePrefix("64:ff9b::/96")    // RFC 6052, section 2.1
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")  // RFC 8215: networks of 96 bits in it
	sixToFour  = netip.MustParsePrefix("2002::/16")       // RFC 3056, section 2
	teredo     = netip.MustParsePrefix("2001::/32")       // RFC 4380, section 4
)

// Where the 32 bits of IPv4 begin.
const (
	atEnd       = 96
	atSixToFour = 16
)

// unwrap returns the network of IPv4 that p stands for, and p where it stands for none;
// masked. Of 6to4 and Teredo that is where the tunnel ends.
func unwrap(p netip.Prefix) netip.Prefix {
	p = p.Masked()
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

// cut returns the network of so many bits that the address ip, of four bytes, is in.
func cut(ip []byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte(ip)), min(bits, limitOfIPv4)).Masked()
}

// limitOfIPv4 is how many bits an address of IPv4 has: in 6to4, more follow.
const limitOfIPv4 = 32
