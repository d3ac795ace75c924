package cassandra

import (
	"context"
	"fmt"
	"testing"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
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
	type levels = []limiter.Level
	for _, c := range []struct {
		asked levels
		want  limiter.Level
	}{
		{levels{limiter.LevelQuorum}, limiter.LevelQuorum},
		{levels{limiter.LevelAny, limiter.LevelAny}, limiter.LevelAny},
		{levels{limiter.LevelAny, limiter.LevelOne}, limiter.LevelOne},
		{levels{limiter.LevelOne, limiter.LevelLocalOne}, limiter.LevelLocalOne},
		{levels{limiter.LevelOne, limiter.LevelLocalQuorum}, limiter.LevelLocalQuorum},
		{levels{limiter.LevelLocalQuorum, limiter.LevelQuorum}, limiter.LevelEachQuorum},
		{levels{limiter.LevelQuorum, limiter.LevelEachQuorum}, limiter.LevelEachQuorum},
		{levels{limiter.LevelTwo, limiter.LevelThree}, limiter.LevelThree},
		{levels{limiter.LevelThree, limiter.LevelQuorum}, limiter.LevelAll},
		{levels{limiter.LevelAll, limiter.LevelOne}, limiter.LevelAll},
	} {
		if got := conn.JointLevel(c.asked); got != c.want {
			t.Errorf("%v: %s, want %s", c.asked, got, c.want)
		}
	}
}
