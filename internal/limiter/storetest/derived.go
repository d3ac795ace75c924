package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// spelled reads identifiers without regard to case, and derives their first letters.
func spelled(p *policy.Policy) (policy.ReadIdentifier, error) {
	derive := p.Derive
	return func(text string) (string, policy.Found, error) {
		text = strings.ToUpper(text)
		if strings.Contains(text, "?") {
			return "", policy.Found{}, errors.New("no question marks")
		}
		var found policy.Found
		for _, d := range derive {
			if d.From == policy.PartWhole {
				found.Parts = append(found.Parts, text)
				continue
			}
			found.Parts = append(found.Parts, text[:min(len(text), d.Digits)])
		}
		return text, found, nil
	}, nil
}

// derivedFor returns the derivations of a policy called person: for the first letter and the first two.
func derivedFor(person policy.Policy) policy.Policy {
	person.Name, person.Normalize = "person", policy.Normalize{Form: policy.FormE164}
	person.Derive = []policy.Derivation{
		{Policy: "letter", From: policy.PartPrefix, Digits: 1}, {Policy: "letters", From: policy.PartPrefix, Digits: 2},
	}
	return person
}

func perMinute(name, algorithm string, n int64, guarantee policy.Guarantee) policy.Policy {
	return policy.Policy{
		Name: name, Guarantee: guarantee, Limits: []policy.Limit{{Algorithm: algorithm, Limit: n, Window: time.Minute}},
	}
}

// testDerived counts a person and derived parts in one step: all or none, for each way of keeping units.
func testDerived(t *testing.T, store store.Store) {
	for _, p := range kinds(2) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			e := NewEngine(t, store, limiter.Options{Identifiers: spelled}, derivedFor(p),
				perMinute("letter", "fixed-window", 3, ""), perMinute("letters", "sliding-log", 100, p.Guarantee))
			take := func(id, want string) limiter.Answer { t.Helper(); return e.takePerson(t, id, want) }
			used := func(policy, id string, want int64) { t.Helper(); e.wantUsedBy(t, policy, id, want) }
			const all = "allowed by person letter letters"
			take("anna", all)
			*e.Now = e.Now.Add(time.Second)
			given := take("ANNA", all) // the same person
			*e.Now = e.Now.Add(time.Second)
			take("Anna", "denied by person")
			used("letter", "A", 2)
			used("letters", "AN", 2)
			take("Alan", all)
			take("Andy", "denied by letter")
			used("letters", "AN", 2)
			used("letters", "AL", 1)
			used("letter", "a", 0) // direct demands for a part are not normalized
			*e.Now = e.Now.Add(3 * storeTimeout)
			if err := e.Refund(t.Context(), given.Receipt); err != nil {
				t.Fatal(err)
			}
			used("letter", "A", 2)
			used("letters", "AN", 1)
			take("Andy", all)
			if err := e.Reset(t.Context(), "person", "aNNA"); err != nil {
				t.Fatal(err)
			}
			used("person", "anna", 0)
			used("letter", "A", 3) // the letter's own
		})
	}
}

// takePerson takes for a person, and fails the test unless the decision is want.
func (e Engine) takePerson(t testing.TB, id, want string) limiter.Answer {
	t.Helper()
	got := e.call(t, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "person", Identifier: keys.Identifier(id)}}})
	text := "allowed by"
	if !got.Allowed {
		text = "denied by"
	}
	for _, d := range got.Demands {
		if d.WouldAllow == got.Allowed {
			text += " " + d.Policy.Name
		}
	}
	if text != want || len(got.Demands) != 3 {
		t.Errorf("%s: %d demands, %s, want %s", id, len(got.Demands), text, want)
	}
	return got
}

func (e Engine) wantUsedBy(t testing.TB, policy, id string, want int64) {
	t.Helper()
	demands := []limiter.Demand{{Policy: policy, Identifier: keys.Identifier(id)}}
	answer := e.call(t, limiter.Call{Op: count.OpCheck, Demands: demands})
	d := &answer.Decision
	if answer.Demands != nil { // otherwise the decision may be that of a derived demand
		d = &answer.Demands[0]
	}
	if d.Used != want {
		t.Errorf("%s of %s: used %d, want %d", policy, id, d.Used, want)
	}
}

// testDerivedReservation holds units of derived demands, too, and settles them.
func testDerivedReservation(t *testing.T, store store.Store) {
	e := NewEngine(t, store, limiter.Options{Identifiers: spelled}, derivedFor(perMinute("", "sliding-log", 2, "")),
		perMinute("letter", "fixed-window", 1, ""), perMinute("letters", "sliding-log", 100, ""))
	check := limiter.Call{
		Op: count.OpCheck, Reserve: time.Minute,
		Demands: []limiter.Demand{{Policy: "person", Identifier: "anna"}},
	}
	held := e.call(t, check)
	check.Demands[0].Identifier = "Alan"
	if other := e.call(t, check); !held.Allowed || other.Allowed || other.Reservation != "" {
		t.Fatalf("held %+v, another hold %+v", held, other)
	}
	settle := limiter.Call{
		Op: count.OpRecord, Reservation: held.Reservation,
		Demands: []limiter.Demand{{Policy: "person", Identifier: "ANNA"}},
	}
	for range 2 { // it is settled once, however often it is repeated
		if got := e.call(t, settle); !got.Allowed || len(got.Demands) != 3 || got.Demands[1].Used != 1 {
			t.Errorf("settled: %+v", got)
		}
		settle.Demands = nil
	}
}

// testDerivedOnce repeats a call under its idempotency key.
func testDerivedOnce(t *testing.T, store store.Store) {
	e := NewEngine(t, store, limiter.Options{Identifiers: spelled}, derivedFor(perMinute("", "sliding-log", 2, "")),
		perMinute("letter", "fixed-window", 5, ""), perMinute("letters", "sliding-log", 100, ""))
	call := limiter.Call{
		Op: count.OpTake, IdempotencyKey: "k",
		Demands: []limiter.Demand{{Policy: "person", Identifier: "anna"}},
	}
	first, again := e.call(t, call), e.call(t, call)
	if !again.Replayed || again.Receipt != first.Receipt || len(again.Demands) != 3 || again.Demands[1].Used != 1 {
		t.Errorf("%+v, and then %+v", first, again)
	}
}
