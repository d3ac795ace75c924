package limiter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// setPrefix puts an override of a prefix in force, until so long after now; 0: without end.
func setPrefix(t *testing.T, e *limiter.Engine, of, prefix string, o demand.Override, lasts time.Duration) {
	t.Helper()
	o.Until = store.Distant
	if lasts > 0 {
		o.Until = store.InstantOf(time.Now().Add(lasts))
	}
	if _, err := e.Overrides.SetPrefix(t.Context(), of, prefix, o); err != nil {
		t.Fatal(err)
	}
}

// prefixed decides by prefixes, over every kind of store, on one instance what another one was told.
func prefixed(t *testing.T, test func(t *testing.T, a, b *limiter.Engine), policies ...policy.Policy) {
	t.Helper()
	o := func(feed store.Feed) *limiter.Options {
		return &limiter.Options{
			Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil), Identifiers: identifier.Reader,
		}
	}
	bubble(t, "shared", func(t *testing.T) {
		s, feed := newFakeStore(), newFakeFeed()
		test(t, instanceWith(t, s, o(feed), policies...), instanceWith(t, s, o(feed), policies...))
	})
	bubble(t, "exclusive", func(t *testing.T) {
		s := embedded.New(nil)
		e := instanceWith(t, s, o(s), policies...)
		test(t, e, e)
	})
}

// numbers is a policy of phone numbers, which admits one an hour.
func numbers() policy.Policy {
	p := policyOf("sliding-log", 1, time.Hour)
	p.Normalize = policy.Normalize{Form: policy.FormE164, Region: "DE"}
	return p
}

// TestLongestPrefixStands among prefixes, whichever was made later, and an identifier's own override above all of them.
func TestLongestPrefixStands(t *testing.T) {
	prefixed(t, func(t *testing.T, a, b *limiter.Engine) {
		take := func(number keys.Identifier) policy.OverrideKind {
			t.Helper()
			time.Sleep(time.Second) // until the news are heard
			d, err := b.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: number})
			if err != nil {
				t.Fatal(err)
			}
			return d.Override
		}
		const number, other, far = "+4915112345678", "0170 1234567", "+33612345678"
		setPrefix(t, a, "p", "+4915", demand.Override{Kind: policy.OverrideAllow}, 0)
		setPrefix(t, a, "p", "+49", demand.Override{Kind: policy.OverrideBlock}, 0)
		if got := []policy.OverrideKind{take(number), take(other), take(far)}; !slices.Equal(got, []policy.OverrideKind{"allow", "block", ""}) {
			t.Errorf("by prefixes: %q", got)
		}
		own := demand.Override{Kind: policy.OverrideBlock, Until: store.InstantOf(time.Now().Add(time.Hour))}
		if _, err := a.Overrides.Set(t.Context(), "p", number, own); err != nil {
			t.Fatal(err)
		}
		setPrefix(t, a, "p", "+49151", demand.Override{Kind: policy.OverrideAllow}, 0)
		if got := take(number); got != policy.OverrideBlock {
			t.Errorf("its own: %q", got)
		}
		x, err := b.Explain(t.Context(), limiter.Demand{Policy: "p", Identifier: number})
		if err != nil || x.Override == nil || x.Override.Prefix != "" || x.Override.Kind != policy.OverrideBlock {
			t.Errorf("its own is explained as %+v, %v", x.Override, err)
		}
		if err := a.Overrides.End(t.Context(), "p", number); err != nil {
			t.Fatal(err)
		}
		if got := take(number); got != policy.OverrideAllow {
			t.Errorf("when its own is over: %q", got)
		}
		if err := a.Overrides.EndPrefix(t.Context(), "p", "+49151"); err != nil {
			t.Fatal(err)
		}
		setPrefix(t, a, "p", "+4915", demand.Override{Kind: policy.OverrideAllow}, time.Minute)
		time.Sleep(time.Second)
		x, err = b.Explain(t.Context(), limiter.Demand{Policy: "p", Identifier: "0151 12345678"})
		if err != nil || x.Override == nil || x.Override.Prefix != "+4915" {
			t.Errorf("a prefix is explained as %+v, %v", x.Override, err)
		}
		time.Sleep(time.Minute)
		if got := take(number); got != policy.OverrideBlock {
			t.Errorf("when the longer one is over, the shorter one stands: %q", got)
		}
		o, ok, err := b.Overrides.OfPrefix("p", "+49")
		if !ok || err != nil || o.Prefix != "+49" {
			t.Errorf("%+v, %v, %v", o, ok, err)
		}
		if _, ok, _ := b.Overrides.OfPrefix("p", "+4915"); ok {
			t.Error("a prefix whose override is over has one")
		}
		o, ok, err = b.Overrides.Of("p", number)
		if !ok || err != nil || o.Prefix != "+49" {
			t.Errorf("%+v, %v, %v", o, ok, err)
		}
	}, numbers())
}

// TestOtherLimitsByPrefix hold for each identifier on its own, and counts stay.
func TestOtherLimitsByPrefix(t *testing.T) {
	p := policyOf("sliding-log", 1, time.Hour)
	p.Limits[0].By, p.Limits[0].Limit = map[string]int64{"premium_a": 2, "premium_b": 3}, 1
	prefixed(t, func(t *testing.T, a, b *limiter.Engine) {
		admitted := func() (all []int) {
			t.Helper()
			for _, id := range []keys.Identifier{"premium_a", "premium_b", "premium_c", "plain"} {
				n := 0
				for ; n < 10; n++ {
					d, err := b.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: id})
					if err != nil {
						t.Fatal(err)
					}
					if !d.Allowed {
						break
					}
				}
				all = append(all, n)
			}
			return all
		}
		if got := admitted(); !slices.Equal(got, []int{2, 3, 1, 1}) {
			t.Fatalf("by the policy: %d", got)
		}
		setPrefix(t, a, "p", "premium_", otherLimit(&p, 5), 0)
		time.Sleep(time.Second)
		if got := admitted(); !slices.Equal(got, []int{3, 2, 4, 0}) {
			t.Errorf("by the prefix: %d", got)
		}
	}, p)
}

// TestPrefixesOfDerivedPolicies decide the parts of identifiers.
func TestPrefixesOfDerivedPolicies(t *testing.T) {
	p := numbers()
	p.Derive = []policy.Derivation{{Policy: "range", From: policy.PartPrefix, Digits: 5}}
	ranges := policyOf("sliding-log", 100, time.Hour)
	ranges.Name = "range"
	prefixed(t, func(t *testing.T, a, b *limiter.Engine) {
		setPrefix(t, a, "range", "+4915", demand.Override{Kind: policy.OverrideBlock}, 0)
		time.Sleep(time.Second)
		for number, blocked := range map[keys.Identifier]bool{"+4915112345678": true, "+4917012345678": false} {
			d, err := b.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: number})
			if err != nil || d.Allowed == blocked {
				t.Errorf("blocked: %v, want %v; %v", !d.Allowed, blocked, err)
			}
			x, err := b.Explain(t.Context(), limiter.Demand{Policy: "p", Identifier: number})
			if err != nil || (x.Derived[0].Override != nil) != blocked {
				t.Errorf("%+v, %v", x.Derived[0].Override, err)
			}
		}
	}, p, ranges)
}

// TestInstancesThatStartKnowPrefixes of their own namespace, whatever the hash key is then; and a policy whose identifiers
// have no prefixes any more goes by none.
func TestInstancesThatStartKnowPrefixes(t *testing.T) {
	bubble(t, "start", func(t *testing.T) {
		s, feed, p := newFakeStore(), newFakeFeed(), numbers()
		anew := func(k keys.Keyer, p policy.Policy) *limiter.Engine {
			e := limiter.New(s, &limiter.Options{
				Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Keyer: k, Identifiers: identifier.Reader,
			})
			if err := errors.Join(e.SetPolicies([]policy.Policy{p}), e.CatchUp(t.Context())); err != nil {
				t.Fatal(err)
			}
			return e
		}
		setPrefix(t, anew(keys.Keyer{Namespace: "a"}, p), "p", "+4915", demand.Override{Kind: policy.OverrideBlock}, 0)
		time.Sleep(100 * 24 * time.Hour)
		secret := &keys.HashKey{ID: "2", Secret: []byte("fedcba9876543210")}
		for namespace, blocked := range map[string]bool{"a": true, "b": false} {
			e := anew(keys.Keyer{Namespace: namespace, Secret: secret}, p)
			d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "+4915112345678"})
			if err != nil || d.Blocked != blocked {
				t.Errorf("%s: %+v, %v", namespace, d, err)
			}
			if all := e.Overrides.All(); len(all) > 0 != blocked {
				t.Errorf("%s: %+v", namespace, all)
			}
		}
		p.Normalize = policy.Normalize{Form: policy.FormEmail}
		d, err := anew(keys.Keyer{Namespace: "a"}, p).Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "+4915@example.com"})
		if err != nil || d.Blocked {
			t.Errorf("a mail address: %+v, %v", d, err)
		}
	})
}

// TestWrongPrefixes are refused, with the field and what would be right.
func TestWrongPrefixes(t *testing.T) {
	var policies []policy.Policy
	for _, form := range []policy.Form{"", policy.FormE164, policy.FormEmail, policy.FormIP, policy.FormIPv6Net, policy.FormLowercase} {
		p := policyOf("fixed-window", 1, time.Hour)
		p.Name, p.Normalize.Form = "p-"+string(form), form
		policies = append(policies, p)
	}
	e := readingEngine(t, embedded.New(nil), policies...)
	for _, c := range []struct{ policy, prefix, says string }{
		{"p-e164", "", "1 to 64 bytes of UTF-8"},
		{"p-e164", "0049", "such as +4915"},
		{"p-e164", "+049", "such as +4915"},
		{"p-e164", "4915", "such as +4915"},
		{"p-e164", "+", "such as +4915"},
		{"p-e164", "+49 15", "such as +4915"},
		{"p-e164", "+491234567890123", "1 to 14 digits"},
		{"p-e164", "+49", ""},
		{"p-e164", "+49123456789012", ""},
		{"p-", strings.Repeat("a", policy.MaxPrefixLen+1), "1 to 64 bytes"},
		{"p-", strings.Repeat("a", policy.MaxPrefixLen), ""},
		{"p-", "Premium_", ""},
		{"p-", "\xff", "UTF-8"},
		{"p-lowercase", "Premium_", "lower case"},
		{"p-lowercase", " premium", "lower case"},
		{"p-lowercase", "u\u0308", "composed"},
		{"p-lowercase", "premium ", ""},
		{"p-email", "anna", "normalizes to email"},
		{"p-ip", "203.0.", "normalizes to ip"},
		{"p-ipv6-64", "2001:", "normalizes to ipv6-64"},
	} {
		_, err := e.Overrides.SetPrefix(t.Context(), c.policy, c.prefix, demand.Override{Kind: policy.OverrideAllow, Until: store.Distant})
		field := (*limiter.FieldError)(nil)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s, %q: %v", c.policy, c.prefix, err)
		case c.says != "" && (!errors.As(err, &field) || field.Field != "prefix" || !strings.Contains(field.Detail, c.says)):
			t.Errorf("%s, %q: %v, want %q", c.policy, c.prefix, err, c.says)
		}
	}
	if _, err := e.Overrides.SetPrefix(t.Context(), "nowhere", "a", demand.Override{}); !errors.Is(err, limiter.ErrUnknownPolicy) {
		t.Error(err)
	}
}
