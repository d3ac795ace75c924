package check_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/faults/check"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// end adds a call with the receipt of the n-th call.
func (s *story) end(op, policy string, n int, at float64, status int, replayed bool) {
	recorded := history.No
	if status == 503 {
		recorded = history.Unknown
	}
	c := s.call(op, policy, at, status, recorded, 0)
	c.Of, c.Replayed, c.Used, c.Allowed = n, replayed, nil, false
}

// taken adds an allowed take, and returns its number.
func (s *story) taken(policy string, at float64) int { return s.allowed(policy, at, 1).N }

// confirmed adds an allowed take that is confirmed soon after.
func (s *story) confirmed(policy string, at float64) {
	s.end(history.Confirm, policy, s.taken(policy, at), at+0.2, 200, false)
}

// Without confirmations two units pass, and one every two seconds as a probe.
func TestLimitOfAConversion(t *testing.T) {
	bothWays(t, check.CheckLimit, func(s *story) {
		s.allowed("conversion", 0, 1)
		s.allowed("conversion", 0.2, 2)
		s.denied("conversion", 1, 2)
		s.allowed("conversion", 2.3, 3)
		s.denied("conversion", 3, 3)
	}, func(s *story) {
		s.allowed("conversion", 0, 1)
		s.allowed("conversion", 0.2, 2)
		s.allowed("conversion", 1.1, 3)
	})
	bothWays(t, check.CheckLimit, func(s *story) { // of simultaneous units, whichever was the last
		s.allowed("conversion", 0, 1)
		s.allowed("conversion", 0, 2)
		s.unknown("conversion", 0)
		s.denied("conversion", 0, 2)
	}, func(s *story) {
		for i := range 3 {
			s.allowed("conversion", 0, int64(i+1))
		}
	})
}

// Each confirmed unit covers two.
func TestLimitOfAConversionDependsOnConfirmations(t *testing.T) {
	story := func(op string, confirmedAt float64, status int) *story {
		s := newStory()
		n := s.taken("conversion", 0)
		s.taken("conversion", 0.1)
		s.end(op, "conversion", n, confirmedAt, status, false)
		s.taken("conversion", 0.8)
		return s
	}
	story(history.Confirm, 0.4, 200).finds(t)
	story(history.Confirm, 0.4, 503).finds(t) // it may have been confirmed in time
	story(history.Confirm, 0.85, 200).finds(t)
	story(history.Confirm, 1, 200).finds(t, check.CheckLimit) // too late
	story(history.Refund, 0.4, 200).finds(t)
	story(history.Refund, 0.4, 503).finds(t)
	story(history.Refund, 1, 200).finds(t, check.CheckLimit)

	s := newStory() // refunded units are not confirmed, and make no room
	n := s.taken("conversion", 0)
	s.end(history.Refund, "conversion", n, 0.2, 200, false)
	for i := range 3 {
		s.taken("conversion", 0.5+0.2*float64(i))
	}
	s.finds(t, check.CheckLimit)

	s = newStory() // units that have left the window no longer count as sent
	for _, at := range []float64{0, 0.2, 4.9, 5.1} {
		s.taken("conversion", at)
	}
	s.finds(t)

	s = newStory() // nor as confirmed
	s.confirmed("conversion", 0)
	for i := range 3 {
		s.taken("conversion", 4.7+0.2*float64(i))
	}
	s.finds(t, check.CheckLimit)
}

func TestConversionDeniesOnlyTooFewConfirmed(t *testing.T) {
	bothWays(t, check.CheckDenied, func(s *story) {
		n := s.taken("conversion", 0)
		s.taken("conversion", 0)
		s.denied("conversion", 1, 2)
		s.end(history.Confirm, "conversion", n, 1.2, 200, false)
		s.taken("conversion", 3)
		s.denied("conversion", 3.6, 2) // one of three is confirmed
	}, func(s *story) {
		s.taken("conversion", 0)
		s.confirmed("conversion", 0)
		s.denied("conversion", 1, 2) // one of two is confirmed
	})
	bothWays(t, check.CheckDenied, func(s *story) {
		s.taken("conversion", 0)
		s.taken("conversion", 0)
		s.denied("conversion", 2.2, 2) // 1.6 s by one clock
	}, func(s *story) {
		s.taken("conversion", 0)
		s.taken("conversion", 0)
		s.denied("conversion", 2.7, 2) // a probe was due
	})
	bothWays(t, check.CheckDenied, func(s *story) {
		for range 2 {
			s.end(history.Refund, "conversion", s.taken("conversion", 0), 0.2, 503, false)
		}
		s.denied("conversion", 1, 2)
	}, func(s *story) {
		for range 2 {
			s.end(history.Refund, "conversion", s.taken("conversion", 0), 0.2, 200, false)
		}
		s.denied("conversion", 1, 2)
	})
}

// At most two unconfirmed units, and any number that are or may be confirmed.
func TestLimitOfUnconfirmedUnits(t *testing.T) {
	const policy = "unconfirmed"
	story := func(status int, endsAt float64) *story {
		s := newStory()
		n := s.taken(policy, 0.5)
		s.allowed(policy, 0.7, 2)
		s.end(history.Confirm, policy, n, endsAt, status, false)
		s.allowed(policy, 1.5, 2)
		return s
	}
	story(200, 1).finds(t)
	story(503, 1).finds(t)
	story(200, 1.55).finds(t)
	f := check.History(&story(200, 1.8).History)
	if f.Of(check.CheckLimit) != 1 {
		t.Errorf("three units, the first of which is confirmed later: %v", f.Violations)
	}
}

func TestConfirmedUnitsAreNotKept(t *testing.T) {
	for policy, doubles := range map[string][]string{
		"kept-unconfirmed": {check.CheckDouble}, "kept-unconfirmed-fixed": nil, // in counters, refunded units may stay
	} {
		story := func(status int, used int64) *story {
			s := newStory()
			n := s.taken(policy, 1)
			s.allowed(policy, 2, 2)
			s.end(history.Confirm, policy, n, 3, status, false)
			s.final(policy, 60, used)
			return s
		}
		story(200, 1).finds(t)
		story(503, 1).finds(t)
		story(503, 2).finds(t)
		story(200, 2).finds(t, doubles...)
		story(200, 0).finds(t, check.CheckLost) // it was refunded twice
	}
}

// At the end a conversion reports the used units of its definition.
func TestConversionKeepsConfirmations(t *testing.T) {
	story := func(op string, status int, used int64) *story {
		s := newStory()
		s.confirmed("kept-conversion", 0)
		n := s.taken("kept-conversion", 1)
		s.taken("kept-conversion", 2)
		s.taken("kept-conversion", 5)
		s.end(op, "kept-conversion", n, 8, status, false)
		s.final("kept-conversion", 60, used)
		return s
	}
	story(history.Confirm, 200, 2).finds(t) // of four units, five may be sent
	story(history.Confirm, 200, 0).finds(t, check.CheckLost)
	story(history.Confirm, 200, 4).finds(t, check.CheckDouble)
	story(history.Confirm, 503, 4).finds(t)
	story(history.Confirm, 503, 1).finds(t, check.CheckLost)
	story(history.Refund, 200, 3).finds(t)
	story(history.Refund, 200, 2).finds(t, check.CheckLost) // as if it had been confirmed
	story(history.Refund, 200, 4).finds(t, check.CheckDouble)
	story(history.Refund, 503, 4).finds(t)

	s := newStory() // probes exceed the limit, as is known
	for i := range 5 {
		s.taken("kept-conversion", 3*float64(i))
	}
	s.final("kept-conversion", 60, 4)
	s.finds(t, check.CheckLost)
}

// A receipt is valid for one confirmation or refund.
func TestReceiptsAreGoodOnce(t *testing.T) {
	twice := func(first, second string, status int, replayed bool) *story {
		s := newStory()
		n := s.taken("kept-unconfirmed", 0.5)
		s.end(first, "kept-unconfirmed", n, 1, 200, false)
		s.end(second, "kept-unconfirmed", n, 2, status, replayed)
		s.final("kept-unconfirmed", 60, 0)
		return s
	}
	twice(history.Confirm, history.Confirm, 200, true).finds(t)
	twice(history.Confirm, history.Refund, 404, false).finds(t)
	twice(history.Refund, history.Confirm, 404, false).finds(t)
	twice(history.Confirm, history.Confirm, 200, false).finds(t, check.CheckOnce)
	twice(history.Confirm, history.Refund, 200, false).finds(t, check.CheckOnce)
	for status, wrong := range map[int][]string{404: {check.CheckOnce}, 200: {check.CheckOnce}} {
		s := newStory()
		s.end(history.Confirm, "kept-unconfirmed", s.taken("kept-unconfirmed", 0.5), 1, status, true)
		s.final("kept-unconfirmed", 60, int64(status/404))
		s.finds(t, wrong...)
	}
	s := newStory() // after its window
	s.end(history.Confirm, "unconfirmed", s.taken("unconfirmed", 0.5), 5, 404, false)
	s.finds(t)
	s = newStory()
	s.call(history.Take, "log", 1, 404, history.No, 0)
	s.finds(t, check.CheckAnswer)
}

// TestLimitOfConcurrentUnits checks that units make room once their release was requested, and may be released again.
func TestLimitOfConcurrentUnits(t *testing.T) {
	story := func(releasedAt float64, status int) *story {
		s := newStory()
		n := s.taken("concurrent", 0)
		s.taken("concurrent", 0.1)
		s.end(history.Refund, "concurrent", n, releasedAt, status, false)
		s.end(history.Refund, "concurrent", n, releasedAt+0.1, 200, false)
		s.taken("concurrent", 0.8)
		return s
	}
	story(0.4, 200).finds(t)
	story(0.4, 503).finds(t)
	story(1, 200).finds(t, check.CheckLimit) // too late
}
