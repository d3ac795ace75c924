package cassandra

import (
	"context"
	"fmt"
	"testing"

	"github.com/gocql/gocql"
)

// TestNeverProposed tells which errors of a conditional write say for sure that it will
// not be stored later.
func TestNeverProposed(t *testing.T) {
	few := func(level gocql.Consistency) error {
		return &gocql.RequestErrUnavailable{Consistency: level, Required: 2, Alive: 1}
	}
	for _, c := range []struct {
		err  error
		sure bool
	}{
		{gocql.ErrNoConnections, true},
		{few(gocql.Consistency(gocql.Serial)), true},
		{fmt.Errorf("asking: %w", few(gocql.Consistency(gocql.LocalSerial))), true},
		{few(gocql.Quorum), false}, // to commit what was accepted
		{few(gocql.LocalQuorum), false},
		{gocql.ErrTimeoutNoResponse, false},
		{gocql.ErrConnectionClosed, false},
		{&gocql.RequestErrWriteTimeout{WriteType: "CAS"}, false},
		{context.DeadlineExceeded, false},
	} {
		if got := neverProposed(c.err); got != c.sure {
			t.Errorf("%v: %v, want %v", c.err, got, c.sure)
		}
	}
}
