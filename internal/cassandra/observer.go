package cassandra

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// observer adds each request to the traces of its calls. The driver calls it when a request is answered or given up. It does
// not read bound values, as keys are among them.
type observer struct{}

var (
	_ gocql.QueryObserver = observer{}
	_ gocql.BatchObserver = observer{}
)

// ObserveQuery implements gocql.QueryObserver.
func (observer) ObserveQuery(ctx context.Context, q gocql.ObservedQuery) {
	trip := tracing.Trip{
		Statement: q.Statement, Statements: 1, Node: addressOf(q.Host), Attempt: q.Attempt, Began: q.Start, Ended: q.End, Err: q.Err,
	}
	trip.Add(ctx)
}

// ObserveBatch implements gocql.BatchObserver.
func (observer) ObserveBatch(ctx context.Context, b gocql.ObservedBatch) {
	trip := tracing.Trip{
		Statements: len(b.Statements), Node: addressOf(b.Host), Attempt: b.Attempt, Began: b.Start, Ended: b.End, Err: b.Err,
	}
	if len(b.Statements) > 0 {
		trip.Statement = b.Statements[0]
	}
	trip.Add(ctx)
}

// addressOf returns the address of host; empty if there is none.
func addressOf(host *gocql.HostInfo) string {
	if host == nil {
		return ""
	}
	return host.ConnectAddress().String()
}
