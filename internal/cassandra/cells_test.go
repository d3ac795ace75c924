package cassandra

import (
	"context"
	"fmt"
	"testing"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
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

func TestJointLevelMeetsAll(t *testing.T) {
	type levels = []policy.Level
	for _, c := range []struct {
		asked levels
		want  policy.Level
	}{
		{levels{policy.LevelQuorum}, policy.LevelQuorum},
		{levels{policy.LevelAny, policy.LevelAny}, policy.LevelAny},
		{levels{policy.LevelAny, policy.LevelOne}, policy.LevelOne},
		{levels{policy.LevelOne, policy.LevelLocalOne}, policy.LevelLocalOne},
		{levels{policy.LevelOne, policy.LevelLocalQuorum}, policy.LevelLocalQuorum},
		{levels{policy.LevelLocalQuorum, policy.LevelQuorum}, policy.LevelEachQuorum},
		{levels{policy.LevelQuorum, policy.LevelEachQuorum}, policy.LevelEachQuorum},
		{levels{policy.LevelTwo, policy.LevelThree}, policy.LevelThree},
		{levels{policy.LevelThree, policy.LevelQuorum}, policy.LevelAll},
		{levels{policy.LevelAll, policy.LevelOne}, policy.LevelAll},
	} {
		if got := conn.JointLevel(c.asked); got != c.want {
			t.Errorf("%v: %s, want %s", c.asked, got, c.want)
		}
	}
}
