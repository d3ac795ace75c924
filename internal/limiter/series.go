package limiter

import "context"

// Series decides calls one after the other, each on its own, as Do does, but in steps: Ask, Decide,
// Tell and Answer. Whoever takes each step for all calls before the next one has the processor keep
// the step's code at hand, which saves a seventh of what many calls over a store in memory take.
// Each step is taken once for a call, in this order, and none after one that failed.
//
// A Series is not safe for concurrent use.
type Series struct {
	engine *Engine
	one    *single
	calls  []seriesCall
}

// seriesCall is a call of a Series, and what became of it.
type seriesCall struct {
	charges [1]charge
	apart   *Call   // which Do decides; nil: it is decided by charges
	answer  *Answer // by Do
	decided bool
}

// maxKeptCalls bounds the calls, of half a kilobyte each, that a Series is kept with for another one.
const maxKeptCalls = 128

// Series returns one of n calls. It is to be ended.
func (e *Engine) Series(n int) *Series {
	s, ok := e.series.Get().(*Series)
	if !ok {
		s = &Series{engine: e}
	}
	if cap(s.calls) < n {
		s.calls = make([]seriesCall, n)
	}
	s.one, s.calls = e.borrow(), s.calls[:n]
	return s
}

// End ends s, and forgets what was asked.
func (s *Series) End() {
	s.engine.release(s.one)
	s.one = nil
	for i := range s.calls {
		c := &s.calls[i]
		c.apart, c.answer, c.decided = nil, nil, false
	}
	if cap(s.calls) <= maxKeptCalls {
		s.engine.series.Put(s)
	}
}

// Ask makes call, which is not to be changed until s ends, call i of s. The error is one of Do that
// says what is wrong with it.
func (s *Series) Ask(i int, call *Call) error {
	c := &s.calls[i]
	c.apart = call
	if len(call.Demands) != 1 || call.byClaim() || !s.engine.secrets.known() {
		return nil
	}
	parts, err := s.engine.charge(&c.charges[0], call.Op, &call.Demands[0])
	if err == nil && parts == nil {
		c.apart = nil
	}
	return err
}

// Decide decides call i. The errors are those of Do; recorded is what it says of the units beside
// one.
func (s *Series) Decide(ctx context.Context, i int) (recorded Recorded, err error) {
	c := &s.calls[i]
	if c.apart != nil {
		answer, err := s.engine.Do(ctx, c.apart)
		c.answer, c.decided = &answer, err == nil
		return answer.Recorded, err
	}
	ch := &c.charges[0]
	ch.still = &s.one.still
	s.engine.decide(ctx, ch)
	if c.decided = ch.err == nil; !c.decided {
		s.engine.tell(ch)
	}
	return ch.decision.Recorded, ch.err
}

// Tell tells the observer of call i, if it was decided.
func (s *Series) Tell(i int) {
	if c := &s.calls[i]; c.decided && c.apart == nil {
		s.engine.tell(&c.charges[0])
	}
}

// Answer makes a the answer to call i, if it was decided.
func (s *Series) Answer(ctx context.Context, i int, a *Answer) {
	switch c := &s.calls[i]; {
	case !c.decided:
	case c.apart != nil:
		*a = *c.answer
	default:
		*a = Answer{Decision: c.charges[0].decision, Receipt: s.engine.receipt(ctx, c.charges[:])}
	}
}
