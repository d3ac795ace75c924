// Package measure runs a load, and reads how much processor time the processes that answer it use. It does not
// start them.
package measure

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/bench/report"
)

// Run runs a load, and returns its result, without names, and the processor time of the processes with these ids.
func Run(ctx context.Context, o load.Options, service, store []int) (*report.Run, error) {
	meter := &meter{service: service, store: store}
	o.Mark = meter.mark
	result, err := load.Run(ctx, o)
	if err = errors.Join(err, meter.err); err != nil {
		return nil, err
	}
	us := func(percent float64) float64 { return float64(result.Latency.ValueAtPercentile(percent)) / 1000 }
	r := &report.Run{
		Keys: o.Keys.String(), Rate: o.Rate, Connections: o.Connections, Batch: max(o.Batch, 1),
		Seconds: result.Elapsed.Seconds(), CPU: meter.used,
		WrongDenials: result.WrongDenials, OverAdmitted: result.OverAdmitted,
		Sent: result.Sent(), Allowed: result.Allowed, Denied: result.Denied, Failed: result.Failed,
		AnswerBytes: float64(result.Bytes) / float64(max(1, result.Sent()/max(1, int64(o.Batch)))),
		Latency:     report.Latency{P50: us(50), P90: us(90), P99: us(99), P999: us(99.9), Max: float64(result.Latency.Max()) / 1000},
	}
	if err := result.Check(); err != nil {
		r.Wrong = err.Error()
	}
	return r, nil
}
