package ratelimittest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

const policies = `
policies:
  - name: sms-send
    limits: [{name: per-hour, algorithm: sliding-log, limit: 2, window: 1h}]
`

func TestADayInATest(t *testing.T) {
	s := ratelimittest.New(t, policies)
	c := s.Client(nil)
	take := func() client.Decision {
		t.Helper()
		d, err := c.Take(t.Context(), client.Demand{Policy: "sms-send", Identifier: "+4915112345678"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for hour := range 24 {
		for use := range 3 {
			if d := take(); d.Allowed != (use < 2) {
				t.Errorf("hour %d, use %d: %+v", hour, use, d)
			}
		}
		s.Advance(time.Hour)
	}
	s.Advance(-time.Hour) // does nothing
	if d := take(); d.Used != 1 {
		t.Errorf("%+v", d)
	}
}

func TestAServiceThatIsGone(t *testing.T) {
	s := ratelimittest.New(t, policies)
	c := s.Client(&client.Options{ProbeInterval: 1}) // the next call finds out at once
	him := client.Demand{Policy: "sms-send", Identifier: "him"}
	if _, err := c.Take(t.Context(), him); err != nil {
		t.Fatal(err)
	}
	s.SetGone(true)
	if _, err := c.Take(t.Context(), him); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	s.SetGone(false)
	if d, err := c.Take(t.Context(), him); err != nil || d.Used != 2 {
		t.Errorf("%+v, %v", d, err)
	}
}

// failing is a test that notes that it failed, and ends there.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	panic(f)
}

func TestMistakesInPoliciesFailTheTest(t *testing.T) {
	f := &failing{TB: t}
	defer func() {
		if recover() != any(f) || !f.failed {
			t.Error("the test went on")
		}
	}()
	ratelimittest.New(f, "policies: [{name: x, limits: []}]")
}
