package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// maxAlike is the maximum of equal operations that are decided at the same time, as many as an engine sends to a store
// together.
const maxAlike = 64

// inLane decides operations in their order. Equal ones in a row are decided at the same time, so that they share
// requests to a store. Which of them is decided first only matters for the order of the answers.
func (s *Server) inLane(ctx context.Context, began time.Time, ops []operation, lane []int, tell func(at ...int)) {
	for len(lane) > 0 {
		n := alike(ops, lane)
		if n == 1 {
			o := &ops[lane[0]]
			o.err = s.operateInTime(ctx, began, &o.call)
		} else {
			s.atOnce(ctx, began, ops, lane[:n])
		}
		tell(lane[:n]...)
		lane = lane[n:]
	}
}

// alike returns the number of operations at the start of lane with the same single demand.
func alike(ops []operation, lane []int) (n int) {
	first := &ops[lane[0]].asked
	for n = 1; n < min(maxAlike, len(lane)); n++ {
		if c := &ops[lane[n]].asked; !plain(first) || !plain(c) || c.Op != first.Op || c.Demands[0] != first.Demands[0] {
			break
		}
	}
	return n
}

// plain reports whether c has one demand, and neither an idempotency key nor a reservation.
func plain(c *decode.Call) bool {
	return len(c.Demands) == 1 && c.IdempotencyKey == "" && c.Reserve == 0 && c.Reservation == ""
}

// atOnce decides equal operations at the same time, and gives the first of them the answers that were admitted first.
func (s *Server) atOnce(ctx context.Context, began time.Time, ops []operation, lane []int) {
	var all sync.WaitGroup
	for _, at := range lane {
		all.Go(func() { ops[at].err = s.operateInTime(ctx, began, &ops[at].call) })
	}
	all.Wait()
	var answers []encode.Decided
	answered := slices.DeleteFunc(slices.Clone(lane), func(at int) bool { return ops[at].err != nil })
	for _, at := range answered {
		answers = append(answers, ops[at].decided)
	}
	slices.SortStableFunc(answers, before)
	for i, at := range answered {
		ops[at].decided = answers[i]
	}
}

// before orders admitted calls first, and among them those that found fewer units used.
func before(a, b encode.Decided) int {
	switch {
	case a.Allowed == b.Allowed:
		return cmp.Compare(a.Used, b.Used)
	case a.Allowed:
		return -1
	}
	return 1
}
