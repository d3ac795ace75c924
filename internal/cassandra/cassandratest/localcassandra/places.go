package localcassandra

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Cassandra's usual ports, for CQL and between nodes.
const (
	nativePort  = "9042"
	storagePort = "7000"

	// addressAttempts is how many of 64,516 groups of loopback addresses are tried; if so many are taken, then the ports are
	// taken on all addresses, or there are no such addresses.
	addressAttempts = 10
)

// places are the listen addresses of one cluster's nodes: each node has its own address, and all have the same ports.
type places struct {
	addresses               []string
	nativePort, storagePort string
}

// freePlaces finds consecutive loopback addresses for n nodes. They are random, so that clusters of test binaries
// that run at the same time don't collide. The ports are the usual ones, unless a listener has them on all addresses.
// Where 127.0.0.1 is the only loopback address, a single node gets that.
func freePlaces(n int) (places, error) {
	candidates := make([][]string, addressAttempts)
	for i := range candidates {
		base := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(254), 1+rand.IntN(254))
		for node := range n {
			candidates[i] = append(candidates[i], fmt.Sprintf("%s%d", base, node+1))
		}
	}
	if n == 1 {
		candidates = append(candidates, []string{"127.0.0.1"})
	}
	var usual, other error
	for _, addresses := range candidates {
		found := places{addresses, nativePort, storagePort}
		if usual = found.free(); usual == nil {
			return found, nil
		}
	}
	for _, addresses := range candidates {
		var found places
		if found, other = withFreePorts(addresses); other == nil {
			return found, nil
		}
	}
	return places{}, fmt.Errorf("no %d loopback addresses with free ports in %d tries, lastly: %w, and: %w",
		n, addressAttempts, usual, other)
}

// withFreePorts lets the system choose two ports that are free on the first address, and checks that they are free on all.
func withFreePorts(addresses []string) (places, error) {
	found := places{addresses: addresses}
	for _, port := range []*string{&found.nativePort, &found.storagePort} {
		listener, err := net.Listen("tcp", net.JoinHostPort(addresses[0], "0"))
		if err != nil {
			return places{}, err
		}
		defer listener.Close()
		if _, *port, err = net.SplitHostPort(listener.Addr().String()); err != nil {
			return places{}, err
		}
	}
	others := places{addresses[1:], found.nativePort, found.storagePort}
	return found, others.free()
}

// free returns nil if nothing listens at these places, or else an error that names the place.
func (p places) free() error {
	for _, address := range p.addresses {
		for _, port := range []string{p.nativePort, p.storagePort} {
			listener, err := net.Listen("tcp", net.JoinHostPort(address, port))
			if err != nil {
				return err
			}
			if err := listener.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}
