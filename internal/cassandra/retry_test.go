package cassandra

import (
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// That a level can't be met is known at once, and by all nodes: nothing was stored, and
// another attempt would only leave that open.
func TestTooFewReplicasAreNoReasonToAskAnotherNode(t *testing.T) {
	refused := &gocql.RequestErrUnavailable{Required: 2, Alive: 1}
	if got := (conn.NextHost{}).GetRetryType(refused); got != gocql.Rethrow {
		t.Errorf("retry type %v, want Rethrow", got)
	}
	s := &Store{config: Config{Timeout: time.Minute}}
	if err := s.stored(refused, 1, time.Now()); !errors.Is(err, store.ErrNotStored) {
		t.Errorf("%v, want that nothing was stored", err)
	}
	if err := s.stored(refused, 1, time.Now().Add(-time.Minute/conn.SpeculateAfter)); errors.Is(err, store.ErrNotStored) {
		t.Errorf("%v, when an attempt may be under way that has not ended", err)
	}
	if err := s.stored(refused, 2, time.Now()); errors.Is(err, store.ErrNotStored) {
		t.Errorf("%v after another attempt, of which nothing is known", err)
	}
	if got := (conn.NextHost{}).GetRetryType(errors.New("connection reset")); got != gocql.RetryNextHost {
		t.Errorf("retry type %v, want the next host", got)
	}
}
