package embedded_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// blockingMinute returns a policy whose denials block for five minutes.
func blockingMinute() []policy.Policy {
	p := policyOf("sliding-log", 1, time.Minute)
	p.BlockFor = 5 * time.Minute
	return []policy.Policy{p}
}

// A block that was made by a clock which was ahead lasts as long as it was to, from when the clock
// is right.
func TestBlockThatIsDatedAhead(t *testing.T) {
	eachMachine(t, blockingMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		m.admitted("p", 2)
		time.Sleep(2 * time.Second) // it is told, and saved
		m.setBack()
		if a := m.do(count.OpTake, "p", 1); !a.Blocked || a.RetryAfter > 5*time.Minute {
			t.Errorf("%+v, want it blocked for five minutes at most", a.Verdict)
		}
		time.Sleep(5 * time.Minute)
		if got := m.admitted("p", 1); got != 1 {
			t.Error("the block goes on")
		}
	})
}

// A block outlives a restart also where the clock went ahead before it was made.
func TestBlockAfterAClockWentAheadOutlivesARestart(t *testing.T) {
	eachMachine(t, blockingMinute(), func(t *testing.T, m *machine) {
		if m.disk == nil {
			t.SkipNow()
		}
		m.clock.set(time.Hour)
		m.admitted("p", 2)
		time.Sleep(2 * time.Minute) // longer than its window
		m.start()
		if a := m.do(count.OpTake, "p", 1); !a.Blocked {
			t.Errorf("%+v, want it blocked", a.Verdict)
		}
	})
}

// A reset by the right clock lifts a block that is dated ahead, and the next denial blocks again.
func TestResetOfABlockThatIsDatedAhead(t *testing.T) {
	eachMachine(t, blockingMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		must(t, m.engine.Reset(t.Context(), "p", "1"))
		time.Sleep(time.Second)
		m.admitted("p", 2)
		time.Sleep(2 * time.Second)
		m.setBack()
		must(t, m.engine.Reset(t.Context(), "p", "1"))
		time.Sleep(time.Second)
		if got := m.admitted("p", 2); got != 1 {
			t.Errorf("%d of 2 pass after the reset, want 1", got)
		}
		time.Sleep(2 * time.Minute) // longer than its window
		if a := m.do(count.OpTake, "p", 1); !a.Blocked {
			t.Errorf("%+v, want it blocked", a.Verdict)
		}
	})
}

// A block by the right clock outlives a reset by one that was ahead.
func TestBlockAfterAResetThatIsDatedAhead(t *testing.T) {
	eachMachine(t, blockingMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		must(t, m.engine.Reset(t.Context(), "p", "1"))
		m.setBack()
		m.admitted("p", 2)
		time.Sleep(2 * time.Minute)
		if a := m.do(count.OpTake, "p", 1); !a.Blocked {
			t.Errorf("%+v, want it blocked", a.Verdict)
		}
	})
}

// override puts an override to block in force for five minutes.
func (m *machine) override() demand.Override {
	m.t.Helper()
	until := store.InstantOf(m.clock.now()).Add(5 * time.Minute)
	o, err := m.engine.Overrides.Set(m.t.Context(), "p", "1", demand.Override{Kind: policy.OverrideBlock, Until: until})
	must(m.t, err)
	return o
}

// An override that was made by a clock which was ahead lasts as long as it was to, and so does one
// that replaces it, also after a restart.
func TestOverrideThatIsDatedAhead(t *testing.T) {
	eachMachine(t, []policy.Policy{policyOf("sliding-log", 1, time.Minute)}, func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		m.override()
		m.setBack()
		if a := m.do(count.OpTake, "p", 1); a.Override != policy.OverrideBlock || a.RetryAfter > 5*time.Minute {
			t.Errorf("%+v, want it blocked for five minutes", a.Verdict)
		}
		if m.disk != nil { // the first that asks has it begin
			m.start()
		}
		lasts := func(want time.Duration) {
			t.Helper()
			if all := m.engine.Overrides.All(); len(all) != 1 || all[0].Until.Sub(store.InstantOf(time.Now())) > want {
				t.Errorf("%+v, want one that lasts for %v", all, want)
			}
			if a := m.do(count.OpTake, "p", 1); a.Override != policy.OverrideBlock || a.RetryAfter > want {
				t.Errorf("%+v, want it blocked for %v", a.Verdict, want)
			}
		}
		lasts(5 * time.Minute)
		time.Sleep(3 * time.Minute)
		lasts(2 * time.Minute)
		if o := m.override(); o.Made > store.InstantOf(time.Now()) {
			t.Errorf("made %v from now", o.Made.Sub(store.InstantOf(time.Now())))
		}
		lasts(5 * time.Minute)
		time.Sleep(4 * time.Minute)
		if m.disk != nil {
			m.start()
		}
		lasts(time.Minute)
		time.Sleep(time.Minute)
		if got := m.admitted("p", 1); got != 1 {
			t.Error("the override goes on")
		}
	})
}

// keyed makes a take under an idempotency key.
func (m *machine) keyed(policy string) limiter.Answer {
	m.t.Helper()
	return m.call(&limiter.Call{
		Op: count.OpTake, Demands: []limiter.Demand{{Policy: policy, Identifier: "1"}}, IdempotencyKey: "k-" + policy,
	})
}

// An idempotency key counts once while it is known, which is for its ten minutes, whatever the clock
// does.
func TestIdempotencyKeyThatIsDatedAhead(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		for i := range m.policies {
			m.keyed(m.policies[i].Name)
		}
		m.setBack()
		for _, ahead := range []time.Duration{0, -time.Hour, 0, time.Hour, 0} {
			m.clock.set(ahead)
			for i := range m.policies {
				if a := m.keyed(m.policies[i].Name); !a.Replayed {
					t.Errorf("%s, %v ahead: counted once more", m.policies[i].Name, ahead)
				}
			}
			time.Sleep(2 * time.Minute)
		}
		time.Sleep(time.Minute)
		for i := range m.policies {
			if name := m.policies[i].Name; name != "day" && m.keyed(name).Replayed {
				t.Errorf("%s: known for longer than it is to be", name)
			}
		}
	})
}

// dying is a store whose process dies in its first update.
type dying struct {
	*embedded.Store
	dead bool
}

// Update dies.
func (d *dying) Update(context.Context, *store.Query, func(*store.State, *store.Write)) error {
	d.dead = true
	return store.ErrUnavailable
}

// Write writes, unless it is dead.
func (d *dying) Write(ctx context.Context, w *store.Write) error {
	if d.dead {
		return store.ErrUnavailable
	}
	return d.Store.Write(ctx, w)
}

// A claim without an answer, by a clock that was ahead, keeps nobody from deciding the call.
func TestClaimThatIsDatedAheadIsTakenOver(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		dies := limiter.New(&dying{Store: m.store}, &limiter.Options{Now: m.clock.now})
		must(t, dies.SetPolicies(m.policies))
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "sliding-log", Identifier: "1"}}, IdempotencyKey: "k"}
		if _, err := dies.Do(t.Context(), &call); err == nil {
			t.Fatal("it has an answer")
		}
		time.Sleep(2 * time.Second)
		m.setBack()
		if a := m.call(&call); !a.Allowed || a.Used != 1 {
			t.Errorf("%+v", a.Verdict)
		}
	})
}

// News that a clock which was ahead has told live for no longer than they were to.
func TestNewsThatAreDatedAheadExpire(t *testing.T) {
	eachMachine(t, perMinute(), func(t *testing.T, m *machine) {
		m.clock.set(time.Hour)
		m.start()
		must(t, m.store.Publish(t.Context(), &store.Change{ID: store.EventID{1}, TTL: time.Minute}))
		m.setBack()
		time.Sleep(2 * time.Minute)
		if changes, err := m.store.Changes(t.Context(), &store.ChangeQuery{}); err != nil || len(changes) > 0 {
			t.Errorf("%v, %v", changes, err)
		}
	})
}
