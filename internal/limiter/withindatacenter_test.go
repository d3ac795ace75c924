package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestUsesLocalLevels tells policies that are promised within a data centre from others.
func TestUsesLocalLevels(t *testing.T) {
	const quorum, localQuorum = limiter.LevelQuorum, limiter.LevelLocalQuorum
	policy := func(algorithms ...string) limiter.Policy {
		p := limiter.Policy{Name: "p"}
		for _, name := range algorithms {
			p.Limits = append(p.Limits, limiter.Limit{Algorithm: name, Limit: 1, Window: time.Minute})
		}
		return p
	}
	serial := policy("sliding-log")
	serial.Guarantee = limiter.GuaranteeSerial
	reads := policy("sliding-log")
	reads.Consistency.Read = limiter.LevelLocalOne
	for _, test := range []struct {
		name       string
		policy     limiter.Policy
		levels     limiter.Level
		local      bool // by LOCAL_SERIAL
		evenSerial bool // and by SERIAL
	}{
		{"counted, at the default", policy("sliding-log"), localQuorum, true, true},
		{"counted, over all", policy("sliding-log"), quorum, false, false},
		{"counted, by a level of its own", reads, quorum, true, true},
		{"serial", serial, quorum, true, false},
		{"serial, where others are local", serial, localQuorum, true, false},
		{"a leaky bucket", policy("leaky-bucket"), quorum, true, false},
		{"a token bucket beside a log", policy("sliding-log", "token-bucket"), quorum, true, false},
	} {
		levels := limiter.Consistency{Write: test.levels, Read: test.levels}
		for level, want := range map[limiter.Level]bool{limiter.LevelLocalSerial: test.local, limiter.LevelSerial: test.evenSerial} {
			policies := []limiter.Policy{policy(), test.policy}
			policies[0].Consistency = limiter.Consistency{Write: quorum, Read: quorum}
			if got := limiter.WithinDatacenter(policies, levels, level); got != want {
				t.Errorf("%s, %s: %v", test.name, level, got)
			}
		}
	}
}
