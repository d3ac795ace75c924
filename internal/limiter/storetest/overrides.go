package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// testOverrides sets overrides on one engine. They apply on another one, under every kind of policy, as soon as that has
// read the news. A store may expire news by its own clock, so the engines use the real time, too.
func testOverrides(t *testing.T, s store.Store) {
	feed, ok := s.(store.Feed)
	if !ok {
		t.Skip("this store has no feed of news")
	}
	for _, p := range kinds(2) {
		for i := range p.Limits {
			p.Limits[i].Window = policy.MaxWindow // a test could cross the edge of a shorter window
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			o := limiter.Options{Feed: feed, Now: time.Now}
			a := NewEngine(t, s, o, p)
			o.Keyer.Namespace = a.namespace
			b := NewEngine(t, s, o, p)
			limits := func(units int64) (l []demand.LimitOverride) {
				for _, of := range p.WithDefaults().Limits {
					l = append(l, demand.LimitOverride{Name: of.Name, Limit: units})
				}
				return l
			}
			for i, c := range []struct {
				override demand.Override
				allowed  []bool // of takes by the other engine
			}{
				{demand.Override{Kind: policy.OverrideBlock}, []bool{false}},
				{demand.Override{Kind: policy.OverrideLimits, Limits: limits(1)}, []bool{true, false}},
				{demand.Override{Kind: policy.OverrideAllow}, []bool{true, true, true}},
				{demand.Override{Kind: policy.OverrideLimits, Limits: limits(3)}, []bool{true, true, false}},
				{demand.Override{}, []bool{false}},
			} {
				a.override(t, p.Name, c.override)
				if err := b.CatchUp(t.Context()); err != nil {
					t.Fatal(err)
				}
				var allowed []bool
				for range c.allowed {
					d, err := b.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: "a"})
					if err != nil {
						t.Fatal(err)
					}
					allowed = append(allowed, d.Allowed)
				}
				if !slices.Equal(allowed, c.allowed) {
					t.Errorf("%d, %+v: %v, want %v", i, c.override, allowed, c.allowed)
				}
			}
		})
	}
}

// override puts o in force for an hour; the zero Override ends the one in force.
func (e Engine) override(t *testing.T, policy string, o demand.Override) {
	t.Helper()
	if o.Kind == "" {
		if err := e.Overrides.End(t.Context(), policy, "a"); err != nil {
			t.Fatal(err)
		}
		return
	}
	o.Until = store.InstantOf(time.Now().Add(time.Hour))
	if _, err := e.Overrides.Set(t.Context(), policy, "a", o); err != nil {
		t.Fatal(err)
	}
}
