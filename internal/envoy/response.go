package envoy

import (
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// statusMemory is a status with its parts, in one allocation.
type statusMemory struct {
	status rls.RateLimitResponse_DescriptorStatus
	limit  rls.RateLimitResponse_RateLimit
	reset  durationpb.Duration
}

// response returns the outcomes of asks, and their overall outcome. It returns an error if a failure of the store
// leaves that open: then Envoy's settings decide.
func (m *mapping) response(asks []ask) (*rls.RateLimitResponse, error) {
	r := &rls.RateLimitResponse{Statuses: make([]*rls.RateLimitResponse_DescriptorStatus, len(asks))}
	memory := make([]statusMemory, len(asks))
	for i := range asks {
		r.Statuses[i] = asks[i].status(&memory[i])
	}
	denied := overall(asks)
	if !denied {
		for i := range asks {
			if asks[i].err != nil {
				return nil, asks[i].err
			}
		}
	}
	r.OverallCode = codeOf(denied)
	if tightest := tightestOf(asks); tightest != nil {
		r.ResponseHeadersToAdd = m.headersOf(tightest, denied)
	}
	return r, nil
}

// overall reports whether the request is denied: by any limit, or by all quotas.
func overall(asks []ask) (denied bool) {
	quotas, lacking := 0, 0
	for i := range asks {
		switch a := &asks[i]; {
		case !a.limited():
		case !a.rule.quota:
			denied = denied || a.denied
		default:
			quotas++
			if a.denied {
				lacking++
			}
		}
	}
	return denied || quotas > 0 && quotas == lacking
}

func codeOf(denied bool) rls.RateLimitResponse_Code {
	if denied {
		return rls.RateLimitResponse_OVER_LIMIT
	}
	return rls.RateLimitResponse_OK
}

// status returns the outcome of a in memory, which must be zero.
func (a *ask) status(memory *statusMemory) *rls.RateLimitResponse_DescriptorStatus {
	s := &memory.status
	switch {
	case a.rule != nil && a.rule.unlimited:
		s.Code, s.LimitRemaining = rls.RateLimitResponse_OK, math.MaxUint32
		return s
	case !a.limited():
		s.Code = rls.RateLimitResponse_OK
		return s
	case a.err != nil:
		return s // unknown
	}
	s.Code = codeOf(a.denied)
	if a.limit == nil { // nothing was counted
		return s
	}
	s.LimitRemaining = capped(a.decision.Remaining)
	memory.limit.Name, memory.limit.RequestsPerUnit, memory.limit.Unit = a.rule.shown, capped(a.limit.Limit), unitOf(a.limit)
	memory.reset.Seconds = seconds(a.decision.ResetAfter)
	s.CurrentLimit, s.DurationUntilReset = &memory.limit, &memory.reset
	return s
}

// capped returns n in the range of the messages.
func capped(n int64) uint32 { return uint32(min(n, math.MaxUint32)) }

// seconds returns d in whole seconds, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

const day = 24 * time.Hour

// unitOf returns the unit of time of l's window, unknown if it is not a unit.
func unitOf(l *policy.Limit) rls.RateLimitResponse_RateLimit_Unit {
	if l.Calendar == policy.CalendarMonth {
		return rls.RateLimitResponse_RateLimit_MONTH
	}
	switch l.Window {
	case time.Second:
		return rls.RateLimitResponse_RateLimit_SECOND
	case time.Minute:
		return rls.RateLimitResponse_RateLimit_MINUTE
	case time.Hour:
		return rls.RateLimitResponse_RateLimit_HOUR
	case day:
		return rls.RateLimitResponse_RateLimit_DAY
	case 7 * day:
		return rls.RateLimitResponse_RateLimit_WEEK
	case 30 * day: // as in envoyproxy/ratelimit
		return rls.RateLimitResponse_RateLimit_MONTH
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN
}

// tightestOf returns the ask for the headers: the one that is denied the longest, else the one with the fewest
// remaining units; nil if no policy decided.
func tightestOf(asks []ask) (tightest *ask) {
	for i := range asks {
		if a := &asks[i]; a.limit != nil && (tightest == nil || a.tighter(tightest)) {
			tightest = a
		}
	}
	return tightest
}

func (a *ask) tighter(than *ask) bool {
	switch {
	case a.denied != than.denied:
		return a.denied
	case !a.denied:
		return a.decision.Remaining < than.decision.Remaining
	}
	wait, other := a.decision.RetryAfter, than.decision.RetryAfter
	return other != count.Never && (wait == count.Never || wait > other)
}

// headersOf returns the headers with a name, for a. denied says that the request is denied.
func (m *mapping) headersOf(a *ask, denied bool) (headers []*core.HeaderValue) {
	add := func(name string, value int64) {
		if name != "" {
			headers = append(headers, &core.HeaderValue{Key: name, Value: strconv.FormatInt(value, 10)})
		}
	}
	add(m.headers.Limit, a.limit.Limit)
	add(m.headers.Remaining, a.decision.Remaining)
	add(m.headers.Reset, seconds(a.decision.ResetAfter))
	if denied && a.denied && a.decision.RetryAfter != count.Never {
		add(m.headers.RetryAfter, max(1, seconds(a.decision.RetryAfter)))
	}
	return headers
}
