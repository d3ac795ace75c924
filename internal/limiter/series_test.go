package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestSeriesDecidesAsDo has one engine decide calls in series, and another one each by itself:
// answers, errors and what observers see are the same.
func TestSeriesDecidesAsDo(t *testing.T) {
	calls := mixedCalls()
	alone, aloneSaw := seriesEngine(t)
	want := make([]string, len(calls))
	for i := range calls {
		want[i] = describe(alone.Do(t.Context(), &calls[i]))
	}
	inSeries, seriesSaw := seriesEngine(t)
	for range 2 { // the second one has the first one's memory
		got := decideInSeries(t.Context(), inSeries, calls)
		if !slices.Equal(got, want) {
			for i := range calls {
				t.Logf("%+v:\n\t%s, want\n\t%s", calls[i], got[i], want[i])
			}
			t.Fatal("the answers differ")
		}
		slices.Sort(*seriesSaw)
		slices.Sort(*aloneSaw)
		if !slices.Equal(*seriesSaw, *aloneSaw) {
			t.Errorf("%q observed, want %q", *seriesSaw, *aloneSaw)
		}
		inSeries, seriesSaw = seriesEngine(t)
	}
}

// TestSeriesThatIsGivenUp answers what was decided, and nothing else.
func TestSeriesThatIsGivenUp(t *testing.T) {
	e, saw := seriesEngine(t)
	calls := mixedCalls()[:2]
	decideInSeries(t.Context(), e, calls) // whose memory the next one has
	*saw = nil
	s := e.Series(len(calls))
	defer s.End()
	for i := range calls {
		if err := s.Ask(i, &calls[i]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Decide(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var answers [2]limiter.Answer
	for i := range calls {
		s.Tell(i)
		s.Answer(t.Context(), i, &answers[i])
	}
	if answers[0].Policy == nil || answers[1].Policy != nil || len(*saw) != 1 {
		t.Errorf("%+v, observed %q: want the first alone", answers, *saw)
	}
}

// TestSeriesReceipts gives back what a series counted, by its receipt.
func TestSeriesReceipts(t *testing.T) {
	e, _ := seriesEngine(t)
	call := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "log", Identifier: "a", Cost: 3}}}
	s := e.Series(1)
	defer s.End()
	var answer limiter.Answer
	if err := s.Ask(0, &call); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Decide(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	s.Answer(t.Context(), 0, &answer)
	if err := e.Refund(t.Context(), answer.Receipt); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Check(t.Context(), call.Demands[0]); err != nil || d.Used != 0 {
		t.Errorf("used %d after the refund (%v)", d.Used, err)
	}
}

// mixedCalls are of all kinds: some share a key, some are refused, and the store fails some.
func mixedCalls() (calls []limiter.Call) {
	for range 2 {
		for _, policy := range []string{"log", "tail", "bucket", "shadow", "off", "blocks", "numbers", "fragile", "lenient", "none"} {
			for _, op := range []limiter.Op{limiter.OpTake, limiter.OpTake, limiter.OpCheck, limiter.OpRecord, limiter.OpTake} {
				calls = append(calls, limiter.Call{Op: op, Demands: []limiter.Demand{{Policy: policy, Identifier: "+4915112345678", Cost: 2}}})
			}
		}
	}
	one := []limiter.Demand{{Policy: "log", Identifier: "b"}}
	return append(calls,
		limiter.Call{Op: limiter.OpTake, Demands: append(slices.Clone(one), limiter.Demand{Policy: "tail", Identifier: "c"})},
		limiter.Call{Op: limiter.OpTake, Demands: one, IdempotencyKey: "k"},
		limiter.Call{Op: limiter.OpTake, Demands: one, IdempotencyKey: "k"},
		limiter.Call{Op: limiter.OpCheck, Demands: one, Reserve: time.Second},
		limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "log", Identifier: "b", Cost: 4}}},
		limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "log", Identifier: "overridden", Cost: 3}}},
		limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "log"}}},
		limiter.Call{Op: limiter.OpTake},
	)
}

// seriesEngine returns an engine whose clock stands, over a store that fails for two policies, and
// what its observer saw.
func seriesEngine(t *testing.T) (*limiter.Engine, *[]string) {
	t.Helper()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	store := &failsFor{Store: embedded.New(&embedded.Options{Now: func() time.Time { return now }}), keys: map[limiter.Key]bool{}}
	saw := new(observations)
	e := limiter.New(store, &limiter.Options{Now: func() time.Time { return now }, Identifiers: identifier.Reader, Observer: saw})
	var policies []limiter.Policy
	for name, algorithm := range map[string]string{
		"log": "sliding-log", "tail": "sliding-tail", "bucket": "token-bucket", "shadow": "sliding-log", "off": "sliding-log",
		"blocks": "fixed-window", "fragile": "fixed-window", "lenient": "sliding-log", "numbers": "sliding-log", "countries": "sliding-log",
	} {
		p := policyOf(algorithm, 3, time.Hour)
		p.Name = name
		switch name {
		case "shadow":
			p.Mode = limiter.ModeShadow
		case "off":
			p.Mode = limiter.ModeOff
		case "blocks":
			p.BlockFor = time.Minute
		case "lenient":
			p.OnStoreError = limiter.OnStoreErrorAllow
		case "numbers":
			p.Normalize, p.Derive = ofCountries(1, 1)[0].Normalize, slices.Clone(ofCountries(1, 1)[0].Derive)
			p.Derive[0].Policy = "countries"
		}
		policies = append(policies, p)
	}
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	blocked := limiter.Override{Kind: limiter.OverrideBlock, Until: limiter.InstantOf(now.Add(time.Hour))}
	if _, err := e.SetOverride(t.Context(), "log", "overridden", blocked); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"fragile", "lenient"} {
		key, err := e.KeyOf(policy, "+4915112345678")
		if err != nil {
			t.Fatal(err)
		}
		store.keys[key] = true
	}
	warm := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "log", Identifier: "before"}}}
	if _, err := e.Do(t.Context(), &warm); err != nil { // the secret of receipts is known from now on
		t.Fatal(err)
	}
	*saw = nil
	return e, (*[]string)(saw)
}

// failsFor is a store that fails for some keys.
type failsFor struct {
	*embedded.Store
	keys map[limiter.Key]bool
}

func (s *failsFor) Update(ctx context.Context, q *limiter.Query, decide func(*limiter.State, *limiter.Write)) error {
	if s.keys[q.Key] {
		return limiter.ErrUnavailable
	}
	return s.Store.Update(ctx, q, decide)
}

// observations are what an observer saw.
type observations []string

func (o *observations) Observe(op limiter.Op, _ limiter.Key, cost int64, d *limiter.Decision) {
	*o = append(*o, fmt.Sprint(op, cost, describe(limiter.Answer{Decision: *d}, nil)))
}

// describe tells an answer, without what is drawn by lot.
func describe(a limiter.Answer, err error) string {
	if err != nil {
		var store *limiter.StoreError
		return fmt.Sprint(err, errors.As(err, &store), a.Recorded)
	}
	text := fmt.Sprint(a.Policy.Name, a.Verdict, a.WouldAllow, a.Degraded, a.Blocked, a.Override, a.Remembered, a.Recorded,
		a.Receipt != "", a.Reservation != "", a.Replayed)
	for i := range a.Limits() {
		text += fmt.Sprint(a.Limits()[i].Limit.Name, a.Limits()[i].Verdict)
	}
	for i := range a.Demands {
		text += describe(limiter.Answer{Decision: a.Demands[i]}, nil)
	}
	return text
}

func decideInSeries(ctx context.Context, e *limiter.Engine, calls []limiter.Call) []string {
	s := e.Series(len(calls))
	defer s.End()
	told, failed := make([]string, len(calls)), make([]bool, len(calls))
	each := func(step func(i int) (limiter.Recorded, error)) {
		for i := range calls {
			if failed[i] {
				continue
			}
			if recorded, err := step(i); err != nil {
				failed[i], told[i] = true, describe(limiter.Answer{Decision: limiter.Decision{Recorded: recorded}}, err)
			}
		}
	}
	each(func(i int) (limiter.Recorded, error) { return "", s.Ask(i, &calls[i]) })
	each(func(i int) (limiter.Recorded, error) { return s.Decide(ctx, i) })
	each(func(i int) (limiter.Recorded, error) { s.Tell(i); return "", nil })
	each(func(i int) (limiter.Recorded, error) {
		var a limiter.Answer
		s.Answer(ctx, i, &a)
		told[i] = describe(a, nil)
		return "", nil
	})
	return told
}
