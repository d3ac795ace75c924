package client

import (
	"fmt"
	"hash/maphash"

	"github.com/ratelimitd/ratelimitd/client/internal/join"
)

// Tests count requests, which two names in one slot would change: the seed is drawn until
// those that tests use have slots of their own.
func init() {
	names := []string{"same", "other", "first", "a", "b"}
	for i := range 40 {
		names = append(names, fmt.Sprint("user-", i))
	}
	for !apart(names) {
		seed = maphash.MakeSeed()
	}
}

// apart reports whether no two of names are in one slot.
func apart(names []string) bool {
	seen := make(map[join.Slot]bool)
	for _, name := range names {
		p := slotOf(&Demand{Identifier: name})
		if seen[p] {
			return false
		}
		seen[p] = true
	}
	return true
}

// UnderWay returns how many demands of c count as under way.
func UnderWay(c *Client) int { return c.queue.UnderWay() }
