package conn

import (
	"context"
	"errors"

	"github.com/gocql/gocql"
)

// Repeatable marks q as safe to send twice: to a second node after the first has failed, or while the first is slow.
func (c *Config) Repeatable(q *gocql.Query) *gocql.Query {
	return q.Idempotent(true).RetryPolicy(NextHost{}).SetSpeculativeExecutionPolicy(c.SecondNode())
}

// SecondNode asks another node if the first one is slow. Otherwise a node that stands still would delay its share of all
// requests until the other nodes notice.
func (c *Config) SecondNode() gocql.SpeculativeExecutionPolicy {
	return &gocql.SimpleSpeculativeExecution{NumAttempts: 1, TimeoutDelay: c.Timeout / SpeculateAfter}
}

// TooFew reports whether the coordinator knew that too few replicas are alive for the level.
func TooFew(err error) bool {
	_, ok := errors.AsType[*gocql.RequestErrUnavailable](err)
	return ok
}

// NextHost retries once, on another node.
type NextHost struct{}

// Attempt allows one retry.
func (NextHost) Attempt(q gocql.RetryableQuery) bool { return q.Attempts() <= 1 }

// GetRetryType returns RetryNextHost, unless another node would return the same error, as with too few living replicas, or
// the request's time is over.
func (NextHost) GetRetryType(err error) gocql.RetryType {
	if TooFew(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return gocql.Rethrow
	}
	return gocql.RetryNextHost
}
