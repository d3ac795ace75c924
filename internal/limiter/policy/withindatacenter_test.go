package policy_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestUsesLocalLevels tells policies that are promised within a data centre from others.
func TestUsesLocalLevels(t *testing.T) {
	const quorum, localQuorum = policy.LevelQuorum, policy.LevelLocalQuorum
	pol := func(algorithms ...string) policy.Policy {
		p := policy.Policy{Name: "p"}
		for _, name := range algorithms {
			p.Limits = append(p.Limits, policy.Limit{Algorithm: name, Limit: 1, Window: time.Minute})
		}
		return p
	}
	reads := pol("sliding-log")
	reads.Consistency.Read = policy.LevelLocalOne
	for _, test := range []struct {
		name       string
		policy     policy.Policy
		levels     policy.Level
		local      bool // by LOCAL_SERIAL
		evenSerial bool // and by SERIAL
	}{
		{"counted, at the default", pol("sliding-log"), localQuorum, true, true},
		{"counted, over all", pol("sliding-log"), quorum, false, false},
		{"counted, by a level of its own", reads, quorum, true, true},
		{"a leaky bucket", pol("leaky-bucket"), quorum, true, false},
		{"a token bucket beside a log", pol("sliding-log", "token-bucket"), quorum, true, false},
	} {
		levels := policy.Consistency{Write: test.levels, Read: test.levels}
		for level, want := range map[policy.Level]bool{policy.LevelLocalSerial: test.local, policy.LevelSerial: test.evenSerial} {
			policies := []policy.Policy{pol(), test.policy}
			policies[0].Consistency = policy.Consistency{Write: quorum, Read: quorum}
			if got := policy.WithinDatacenter(policies, levels, level); got != want {
				t.Errorf("%s, %s: %v", test.name, level, got)
			}
		}
	}
}
