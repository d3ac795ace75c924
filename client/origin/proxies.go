package origin

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the addresses of proxies whose X-Forwarded-For is trusted; empty: none.
type Proxies []netip.Prefix

// ParseProxies reads addresses and prefixes, separated by commas, such as "10.0.0.0/8,192.0.2.7". "none" and empty text
// mean no proxies.
func ParseProxies(text string) (Proxies, error) {
	if text = strings.TrimSpace(text); text == "" || text == "none" {
		return nil, nil
	}
	var proxies Proxies
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		if address, failed := netip.ParseAddr(part); failed == nil && address.Zone() == "" {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil || prefix != prefix.Masked() {
			return nil, fmt.Errorf("%.64q is neither an address nor a prefix: write them such as 10.0.0.0/8 or 192.0.2.7", part)
		}
		proxies = append(proxies, prefix)
	}
	return proxies, nil
}

// Trust reports whether an address, with a port or without, is one of p.
func (p Proxies) Trust(address string) bool {
	parsed, ok := parseAddress(address)
	return ok && p.contain(parsed)
}

func (p Proxies) contain(address netip.Addr) bool {
	for _, prefix := range p {
		if Unmapped(prefix).Contains(address) {
			return true
		}
	}
	return false
}

// ErrHidden means that a proxy hides the address that it forwards for.
var ErrHidden = errors.New("X-Forwarded-For has something else than an address where a trusted proxy writes its client's")

// Client returns the address that r comes from: that of the connection or, if that is one of p, the one that
// X-Forwarded-For gives. A /64 of IPv6 is one client, and an address that stands for one of IPv4 is that one. The error
// is ErrHidden if one of p says "unknown", or anything else that is not an address: all clients behind it would be one.
func (p Proxies) Client(r *http.Request) (string, error) {
	address, ok := parseAddress(r.RemoteAddr)
	if !ok {
		return r.RemoteAddr, nil // of a socket without addresses
	}
	for hop := range hops(r.Header["X-Forwarded-For"]) {
		if !p.contain(address) {
			break
		}
		if address, ok = parseAddress(hop); !ok {
			return "", ErrHidden
		}
	}
	return caller(address), nil
}

// ClientOf returns the client as which an address counts, as Client does, with a port or without. ok is false if text
// is not an address.
func ClientOf(text string) (client string, ok bool) {
	address, ok := parseAddress(text)
	if !ok {
		return "", false
	}
	return caller(address), true
}

// hops returns the parts of headers between commas, from the last, which is the nearest, to the first.
func hops(headers []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range slices.Backward(headers) {
			for comma := len(line); comma >= 0; {
				line = line[:comma]
				comma = strings.LastIndexByte(line, ',')
				if hop := strings.TrimSpace(line[comma+1:]); hop != "" && !yield(hop) {
					return
				}
			}
		}
	}
}

// parseAddress reads an address with a port or without.
func parseAddress(text string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone(""), true
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return address.Unmap().WithZone(""), err == nil
}

// isAddress reports whether Client could return text.
func isAddress(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	_, err := netip.ParsePrefix(text)
	return err == nil || text == "@" // the address of unix sockets
}
