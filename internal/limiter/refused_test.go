package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// french is a number that ofGermany refuses.
const french keys.Identifier = "+33612345678"

// ofGermany admits numbers of one country, and counts that, too.
func ofGermany() []policy.Policy {
	policies := ofCountries(5, 100)
	policies[0].Countries.Allow = []string{"DE"}
	return policies
}

func takeNumber(number keys.Identifier, more ...limiter.Demand) limiter.Call {
	return limiter.Call{Op: count.OpTake, Demands: append([]limiter.Demand{{Policy: "p", Identifier: number}}, more...)}
}

// TestRefusedNumbers decides by the rule alone, whatever kind of call it is, and counts nothing.
func TestRefusedNumbers(t *testing.T) {
	for name, s := range map[string]store.Store{"exclusive": embedded.New(nil), "shared": struct{ store.Store }{embedded.New(nil)}} {
		t.Run(name, func(t *testing.T) {
			policies := ofGermany()
			policies[0].Count, policies[0].BlockFor = policy.CountAll, time.Hour
			e := readingEngine(t, s, append(policies, policy.Policy{Name: "device", Limits: []policy.Limit{limitOf("sliding-log", 5)}})...)
			beside := limiter.Demand{Policy: "device", Identifier: "d"}
			again := takeNumber(french)
			again.IdempotencyKey = "once"
			for i, call := range []limiter.Call{
				takeNumber(french), takeNumber(french, beside), again, again,
				{Op: count.OpCheck, Demands: takeNumber(french).Demands},
				{Op: count.OpCheck, Demands: takeNumber(french).Demands, Reserve: time.Minute},
			} {
				got := mustDo(t, e, call)
				if got.Allowed || got.Reason != policy.ReasonCountry || got.RetryAfter != count.Never || got.Recorded != count.RecordedNo ||
					got.Receipt != "" || got.Reservation != "" || got.Blocked {
					t.Errorf("call %d: %+v", i, got)
				}
			}
			for _, d := range []limiter.Demand{beside, {Policy: "q", Identifier: "FR"}} {
				if used := usedBy(t, e, d); used != 0 {
					t.Errorf("%s: %d used", d.Policy, used)
				}
			}
			x, err := e.Explain(t.Context(), takeNumber(french).Demands[0])
			if err != nil || x.Answer.Reason != policy.ReasonCountry || x.Counted.Used != 0 || x.Block != nil || x.Derived != nil {
				t.Errorf("%+v, %v", x, err)
			}
			if got := mustDo(t, e, takeNumber("+4915112345678", beside)); !got.Allowed || got.Reason != "" {
				t.Errorf("a number of the country: %+v", got)
			}
		})
	}
}

// TestRefusedNumbersAreRecorded counts what was sent all the same.
func TestRefusedNumbersAreRecorded(t *testing.T) {
	e := readingEngine(t, embedded.New(nil), ofGermany()...)
	got := mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: takeNumber(french).Demands})
	if !got.Allowed || got.Reason != "" || len(got.Demands) != 2 || usedBy(t, e, limiter.Demand{Policy: "q", Identifier: "FR"}) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestRefusedInShadow allows, says what it would deny and why, and asks for what is derived.
func TestRefusedInShadow(t *testing.T) {
	policies := ofGermany()
	policies[0].Mode = policy.ModeShadow
	e := readingEngine(t, embedded.New(nil), policies...)
	got := mustDo(t, e, takeNumber(french))
	if !got.Allowed || got.WouldAllow || got.Demands[0].Reason != policy.ReasonCountry || got.Demands[1].Used != 1 {
		t.Errorf("%+v", got)
	}
	policies[0].Mode = policy.ModeOff
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	if got := mustDo(t, e, takeNumber(french)); !got.Allowed || !got.WouldAllow || got.Reason != "" {
		t.Errorf("off: %+v", got)
	}
}

// TestOverridesStandAboveRules has an override let a number through, and not one that changes limits.
func TestOverridesStandAboveRules(t *testing.T) {
	e := readingEngine(t, embedded.New(nil), ofGermany()...)
	until := store.InstantOf(time.Now().Add(time.Hour))
	nine := []demand.LimitOverride{{Name: "sliding-log-1h", Limit: 9}}
	for _, c := range []struct {
		demand.Override
		reason policy.Reason
	}{
		{demand.Override{Kind: policy.OverrideLimits, Limits: nine}, policy.ReasonCountry},
		{demand.Override{Kind: policy.OverrideAllow}, ""},
		{demand.Override{Kind: policy.OverrideBlock}, ""},
	} {
		c.Until = until
		if _, err := e.Overrides.Set(t.Context(), "p", french, c.Override); err != nil {
			t.Fatal(err)
		}
		if got := mustDo(t, e, takeNumber(french)); got.Allowed != (c.Kind == policy.OverrideAllow) || got.Reason != c.reason {
			t.Errorf("%s: allowed %v, reason %q", c.Kind, got.Allowed, got.Reason)
		}
	}
	if used := usedBy(t, e, limiter.Demand{Policy: "q", Identifier: "FR"}); used != 1 {
		t.Errorf("%d used of the country, by what was let through", used)
	}
}

// TestByIdentifierAtOwners has an owner, which is told a key and no identifier, go by the number of
// that identifier.
func TestByIdentifierAtOwners(t *testing.T) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		p := logOf(1)
		p.Guarantee, p.Limits[0].By = guarantee, map[string]int64{"id": 3}
		asks, _, link := askerOf(t, p)
		for n := range 4 {
			if ok, err := takeOne(t.Context(), asks); ok != (n < 3) || err != nil {
				t.Errorf("%s, take %d: %v, %v", guarantee, n, ok, err)
			}
		}
		other, err := asks.Take(t.Context(), limiter.Demand{Policy: "log", Identifier: "other"})
		if err != nil || !other.Allowed || other.Remaining != 0 || link.asked.Load() == 0 {
			t.Errorf("%s: %+v, %v, asked %d times", guarantee, other, err, link.asked.Load())
		}
	}
}

// TestByIdentifierOfDerived bounds each country by its own number, in the call that derives it.
func TestByIdentifierOfDerived(t *testing.T) {
	policies := ofCountries(100, 1)
	policies[1].Limits[0].By = map[string]int64{"DE": 3, "FR": 2, "+800": 0}
	e := readingEngine(t, embedded.New(nil), policies...)
	for number, want := range map[keys.Identifier]int64{"+4915112345678": 3, french: 2, "+43664123456": 1, "+80012345678": 0} {
		for n := range want + 1 {
			got := mustDo(t, e, takeNumber(number))
			if limit := got.Demands[1].TightestLimit().Limit; got.Allowed != (n < want) || limit != want {
				t.Errorf("%s, take %d: allowed %v by a limit of %d, want %d", number, n, got.Allowed, limit, want)
			}
		}
	}
}

// TestByIdentifierAsItIsCounted refuses identifiers that are never counted as they are written.
func TestByIdentifierAsItIsCounted(t *testing.T) {
	p := policy.Policy{Name: "p", Normalize: policy.Normalize{Form: policy.FormE164}, Limits: []policy.Limit{limitOf("sliding-log", 1)}}
	e := limiter.New(embedded.New(nil), &limiter.Options{Identifiers: identifier.Reader})
	for value, known := range map[string]bool{"+4915112345678": true, "+49 151 12345678": false, "DE": false} {
		p.Limits[0].By = map[string]int64{value: 2}
		if err := e.SetPolicies([]policy.Policy{p}); (err == nil) != known {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestByIdentifierUnderTwoHashKeys has an owner that writes under another hash key than its caller use the number of
// the identifier.
func TestByIdentifierUnderTwoHashKeys(t *testing.T) {
	first := keys.Keyer{Secret: &keys.HashKey{ID: "1", Secret: []byte("0123456789abcdef")}}
	second := keys.Keyer{Secret: &keys.HashKey{ID: "2", Secret: []byte("fedcba9876543210")}}
	p, store := logOf(1), newFakeStore()
	p.Limits[0].By = map[string]int64{"id": 3}
	owns := ownerOf(t, store, ownsAll(), limiter.Options{Keyer: second, AlsoRead: []keys.Keyer{first}}, p)
	link := &toOwner{engine: owns}
	asks := ownerOf(t, store, &owners{other: link}, limiter.Options{Keyer: first, AlsoRead: []keys.Keyer{second}}, p)
	for n := range 4 {
		if ok, err := takeOne(t.Context(), asks); ok != (n < 3) || err != nil {
			t.Errorf("take %d: %v, %v", n, ok, err)
		}
	}
	if n := link.asked.Load(); n != 4 {
		t.Errorf("the owner was asked %d times for 4 takes, want 4: it knows the number under both keys", n)
	}
}
