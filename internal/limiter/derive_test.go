package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// ofCountries is a policy of phone numbers that derives their countries.
func ofCountries(person, country int64) []policy.Policy {
	policies := twoPolicies(limitOf("sliding-log", person), limitOf("sliding-log", country))
	policies[0].Normalize.Form = policy.FormE164
	policies[0].Derive = []policy.Derivation{{Policy: "q", From: policy.PartCountry}}
	return policies
}

func readingEngine(t testing.TB, store store.Store, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{Identifiers: identifier.Reader})
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestDerivedOfSeveral adds up what several demands derive alike, and what is asked for
// beside them.
func TestDerivedOfSeveral(t *testing.T) {
	e := readingEngine(t, embedded.New(nil), ofCountries(100, 10)...)
	got := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
		{Policy: "p", Identifier: "+49 151 12345678", Cost: 2},
		{Policy: "p", Identifier: "+49 151 12345679", Cost: 3},
		{Policy: "q", Identifier: "DE", Cost: 4},
		{Policy: "p", Identifier: "+1 415 555 2671"},
	}})
	var used []int64
	for _, d := range got.Demands {
		used = append(used, d.Used)
	}
	if want := []int64{2, 3, 9, 1, 1}; !slices.Equal(used, want) {
		t.Errorf("used %v, want %v", used, want)
	}
	if used := usedBy(t, e, limiter.Demand{Policy: "q", Identifier: "US"}); used != 1 {
		t.Errorf("%d in the US, want 1", used)
	}
}

// TestDemandsThatCannotBe are refused, and name the demand that was sent.
func TestDemandsThatCannotBe(t *testing.T) {
	e := readingEngine(t, embedded.New(nil), ofCountries(100, 50)...)
	number := func(id keys.Identifier, cost int64) limiter.Demand {
		return limiter.Demand{Policy: "p", Identifier: id, Cost: cost}
	}
	var many []limiter.Demand
	for i := range policy.MaxDemands {
		many = append(many, number(keys.Identifier(fmt.Sprintf("+49151123456%02d", i)), 1))
	}
	for name, c := range map[string]struct {
		demands []limiter.Demand
		field   string
		err     error
	}{
		"no number":           {[]limiter.Demand{number("0170", 1)}, "identifier", limiter.ErrInvalid},
		"no second number":    {[]limiter.Demand{number("+4915112345678", 1), number("0170", 1)}, "demands[1].identifier", limiter.ErrInvalid},
		"spelled twice":       {[]limiter.Demand{number("+4915112345678", 1), number("+49 151 12345678", 1)}, "demands[1]", limiter.ErrInvalid},
		"too many in all":     {many, "demands", limiter.ErrInvalid},
		"more than a country": {[]limiter.Demand{number("+4915112345678", 51)}, "", limiter.ErrCostTooLarge},
		"together more":       {[]limiter.Demand{number("+4915112345678", 30), number("+4915112345679", 21)}, "", limiter.ErrCostTooLarge},
	} {
		_, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: c.demands})
		var field *limiter.FieldError
		if !errors.Is(err, c.err) || errors.As(err, &field) && field.Field != c.field {
			t.Errorf("%s: %v, want %v of %q", name, err, c.err, c.field)
		}
		if err != nil && strings.Contains(err.Error(), "170") {
			t.Errorf("%s: the error repeats the identifier: %v", name, err)
		}
	}
	if used := usedBy(t, e, limiter.Demand{Policy: "q", Identifier: "DE"}); used != 0 {
		t.Errorf("%d counted by what was refused", used)
	}
}

// TestDerivedByMode makes sure that a policy that is off derives nothing, and that one in
// mode shadow does, in the mode of what it derives.
func TestDerivedByMode(t *testing.T) {
	policies := ofCountries(1, 1)
	me := limiter.Demand{Policy: "p", Identifier: "+4915112345678"}
	for mode, want := range map[policy.Mode][2]bool{policy.ModeOff: {true, true}, policy.ModeShadow: {true, false}} {
		policies[0].Mode = mode
		e := readingEngine(t, embedded.New(nil), policies...)
		first, _ := e.Take(t.Context(), me)
		second, err := e.Take(t.Context(), me)
		if got := [2]bool{first.Allowed, second.Allowed}; got != want || err != nil {
			t.Errorf("%s: %v, want %v (%v)", mode, got, want, err)
		}
	}
}

// TestKeyOfIsCanonical is the same key for all spellings, as observers see it.
func TestKeyOfIsCanonical(t *testing.T) {
	seen := new(lastKey)
	e := limiter.New(embedded.New(nil), &limiter.Options{Identifiers: identifier.Reader, Observer: limiter.Observer{Decided: seen.observe}})
	policies := ofCountries(5, 5)
	policies[0].Derive = nil
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "+49 (0)151 12345678"}); err != nil {
		t.Fatal(err)
	}
	if key, err := e.KeyOf("p", "+49-151-12345678"); err != nil || key != seen.key {
		t.Errorf("%v (%v), and observed was %v", key, err, seen.key)
	}
	if _, err := e.KeyOf("p", "anna"); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("the key of no number: %v", err)
	}
	for id, want := range map[keys.Identifier]keys.Identifier{"+49 151 12345678": "+4915112345678", "anna": "anna"} {
		if got := e.Canonical("p", id); string(got) != string(want) || string(e.Canonical("q", id)) != string(id) || e.Canonical("r", id) != id {
			t.Errorf("another one is canonical")
		}
	}
}

// TestIdentifiersThatGrow are refused in their canonical form, too, so that a caller that is
// told one can send it.
func TestIdentifiersThatGrow(t *testing.T) {
	policies := twoPolicies(limitOf("sliding-log", 1), limitOf("sliding-log", 1))
	policies[0].Normalize.Form = policy.FormLowercase
	e := readingEngine(t, embedded.New(nil), policies...)
	d := limiter.Demand{Policy: "p", Identifier: keys.Identifier(strings.Repeat("Ⱥ", keys.MaxIdentifierLen/2))}
	if _, err := e.Take(t.Context(), d); !errors.Is(err, limiter.ErrInvalid) {
		t.Errorf("%v", err)
	}
}

// TestDerivedPoliciesThatCannotBe are refused when they come into force.
func TestDerivedPoliciesThatCannotBe(t *testing.T) {
	change := func(f func(p, q *policy.Policy)) []policy.Policy {
		policies := ofCountries(1, 1)
		f(&policies[0], &policies[1])
		return policies
	}
	for name, policies := range map[string][]policy.Policy{
		"a policy that is not there": change(func(p, _ *policy.Policy) { p.Derive[0].Policy = "r" }),
		"itself":                     change(func(p, _ *policy.Policy) { p.Derive[0].Policy = "p" }),
		"twice":                      change(func(p, _ *policy.Policy) { p.Derive = append(p.Derive, p.Derive[0]) }),
		"one that derives": append(change(func(p, q *policy.Policy) {
			net := policy.Derivation{Policy: "q", From: policy.PartIPPrefix, IPv4Bits: 24}
			p.Normalize.Form, p.Derive = policy.FormIP, []policy.Derivation{net}
			net.Policy = "r"
			q.Normalize.Form, q.Derive = policy.FormIP, []policy.Derivation{net}
		}), policy.Policy{Name: "r", Limits: []policy.Limit{limitOf("sliding-log", 1)}}),
		"what is no number":      change(func(_, q *policy.Policy) { q.Normalize.Form = policy.FormE164 }),
		"a part of nothing":      change(func(p, _ *policy.Policy) { p.Normalize.Form = "" }),
		"a part of another form": change(func(p, _ *policy.Policy) { p.Derive[0].From = policy.PartDomain }),
		"no part there is":       change(func(p, _ *policy.Policy) { p.Derive[0].From = "planet" }),
		"no digits":              change(func(p, _ *policy.Policy) { p.Derive[0].From = policy.PartPrefix }),
		"digits of a country":    change(func(p, _ *policy.Policy) { p.Derive[0].Digits = 3 }),
		"a form there is not":    change(func(p, _ *policy.Policy) { p.Normalize.Form, p.Derive = "tel", nil }),
		"a region of nobody":     change(func(p, _ *policy.Policy) { p.Normalize.Region = "XX" }),
		"the region of mail": change(func(p, _ *policy.Policy) {
			p.Normalize, p.Derive = policy.Normalize{Form: "email", Region: "DE"}, nil
		}),
		"mailboxes of numbers": change(func(p, _ *policy.Policy) { p.Normalize.Mailbox = true }),
		"more than a subnet": change(func(p, _ *policy.Policy) {
			p.Normalize.Form = policy.FormIPv6Net
			p.Derive[0] = policy.Derivation{Policy: "q", From: policy.PartIPPrefix, IPv4Bits: 24, IPv6Bits: 65}
		}),
	} {
		e := limiter.New(embedded.New(nil), &limiter.Options{Identifiers: identifier.Reader})
		if err := e.SetPolicies(policies); err == nil || len(e.Policies()) > 0 {
			t.Errorf("%s is derived: %v", name, err)
		}
	}
	if err := limiter.New(embedded.New(nil), nil).SetPolicies(ofCountries(1, 1)); err == nil {
		t.Error("an engine that can't read identifiers takes a policy of such")
	}
}

// TestDefaultsOfDerivations are filled in, and the policies that were given stay as they are.
func TestDefaultsOfDerivations(t *testing.T) {
	given := ofCountries(1, 1)[0]
	given.Normalize.Form = policy.FormIP
	given.Derive = []policy.Derivation{{Policy: "q", From: policy.PartIPPrefix, IPv4Bits: 24}}
	filled := given.WithDefaults()
	if filled.Derive[0].IPv6Bits != policy.DefaultIPv6Bits || given.Derive[0].IPv6Bits != 0 {
		t.Errorf("%+v, of %+v", filled.Derive, given.Derive)
	}
	if again := filled.WithDefaults(); !reflect.DeepEqual(again, filled) {
		t.Errorf("%+v, and then %+v", filled, again)
	}
}

// TestDerivedWhileTheStoreIsAway goes by each policy's on_store_error.
func TestDerivedWhileTheStoreIsAway(t *testing.T) {
	policies := ofCountries(5, 5)
	policies[0].OnStoreError = policy.OnStoreErrorAllow
	s := newFakeStore()
	s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
	e := readingEngine(t, s, policies...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := e.Take(ctx, limiter.Demand{Policy: "p", Identifier: "+4915112345678"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the country's policy denies: %v", err)
	}
	policies[1].OnStoreError = policy.OnStoreErrorAllow
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	if d, err := e.Take(ctx, limiter.Demand{Policy: "p", Identifier: "+4915112345678"}); err != nil || !d.Allowed || !d.Degraded {
		t.Errorf("both allow: %+v, %v", d, err)
	}
}

// TestDerivedInMemory decides what many share under guarantee local, beside what is counted, and all or
// none of it.
func TestDerivedInMemory(t *testing.T) {
	policies := ofCountries(1, 2)
	policies[1].Guarantee = policy.GuaranteeLocal
	e := limiter.New(newFakeStore(), &limiter.Options{Identifiers: identifier.Reader, Owners: &owners{term: &tenancy{}}})
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "p", Identifier: "+4915112345678"}}}
	for i, want := range []struct {
		number  keys.Identifier
		allowed bool
		country int64
	}{
		{"+4915112345678", true, 1},
		{"+49 151 12345678", false, 1}, // the number's own: the country takes it back
		{"+4915112345679", true, 2},
		{"+4915112345670", false, 2},
	} {
		call.Demands[0].Identifier = want.number
		if got := mustDo(t, e, call); got.Allowed != want.allowed || got.Demands[1].Used != want.country {
			t.Errorf("take %d: allowed %v with %d of the country, want %v with %d", i, got.Allowed, got.Demands[1].Used, want.allowed, want.country)
		}
	}
}
