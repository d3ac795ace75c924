package client

import (
	"fmt"
	"hash/maphash"
)

// Tests count requests, which two names at one place would change: the seed is drawn until
// those that tests use have places of their own.
func init() {
	names := []string{"same", "other", "first", "a", "b"}
	for i := range 40 {
		names = append(names, fmt.Sprint("user-", i))
	}
	for !apart(names) {
		seed = maphash.MakeSeed()
	}
}

// apart reports whether no two of names are at one place.
func apart(names []string) bool {
	seen := make(map[uint16]bool)
	for _, name := range names {
		p := place(&Demand{Identifier: name})
		if seen[p] {
			return false
		}
		seen[p] = true
	}
	return true
}

// Marked returns how many calls of c count as under way.
func Marked(c *Client) (n int) {
	c.traffic.mu.Lock()
	defer c.traffic.mu.Unlock()
	for _, calls := range c.traffic.alike {
		n += max(int(calls), -int(calls))
	}
	return n
}
