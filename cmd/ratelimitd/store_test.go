package main

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

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

func TestSerialConsistency(t *testing.T) {
	config := writeFile(t, "c.yaml", "serial-consistency: serial\n")
	for _, test := range []struct {
		name    string
		environ []string
		args    []string
		want    limiter.Level
	}{
		{"unless given", nil, nil, limiter.LevelLocalSerial},
		{"a flag", nil, []string{"--serial-consistency=SERIAL"}, limiter.LevelSerial},
		{"a variable", []string{"RATELIMITD_SERIAL_CONSISTENCY=SERIAL"}, nil, limiter.LevelSerial},
		{"a file", nil, []string{"--config=" + config}, limiter.LevelSerial},
		{"a flag beats both", []string{"RATELIMITD_SERIAL_CONSISTENCY=SERIAL"},
			[]string{"--config=" + config, "--serial-consistency=local_serial"}, limiter.LevelLocalSerial},
	} {
		s := new(settings)
		cmd := newServe(nil)
		cmd.ResetFlags()
		s.addCommonFlags(cmd.Flags())
		s.addCassandraFlags(cmd.Flags())
		if err := cmd.ParseFlags(test.args); err != nil {
			t.Fatal(err)
		}
		if _, err := s.load(cmd, test.environ); err != nil {
			t.Fatal(err)
		}
		if got := s.cassandra.serialConsistency; got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	const want = `"QUORUM" is no serial level: use one of SERIAL, LOCAL_SERIAL`
	if code, _, stderr := execute(t, nil, "serve", "--serial-consistency=QUORUM"); code != exitUsage || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, errors %q, want %q in them", code, stderr, want)
	}
}
