package conn

import (
	"slices"
	"testing"

	"github.com/gocql/gocql"
)

// What the driver picks has a node twice where it has two descriptions of it: each is
// tried once, and all once more.
func TestNodesAreTriedInTurn(t *testing.T) {
	pick := func() gocql.NextHost {
		left := []string{"a", "a", "b", "a", "c"}
		return func() gocql.SelectedHost {
			if len(left) == 0 {
				return nil
			}
			host := new(gocql.HostInfo)
			host.SetHostID(left[0])
			left = left[1:]
			return chosenHost{host}
		}
	}
	var tried []string
	for next, host := twice(pick), gocql.SelectedHost(nil); ; {
		if host = next(); host == nil {
			break
		}
		tried = append(tried, host.Info().HostID())
	}
	if want := []string{"a", "b", "c", "a", "b", "c"}; !slices.Equal(tried, want) {
		t.Errorf("tried %v, want %v", tried, want)
	}
}
