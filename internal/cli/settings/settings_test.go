package settings_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func TestClockTolerance(t *testing.T) {
	for _, test := range []struct {
		args string
		want time.Duration
	}{
		{"", 0}, // embedded: one clock
		{"--clock-tolerance=20ms", 20 * time.Millisecond},
		{"--store=cassandra", 100 * time.Millisecond},
		{"--store=cassandra --clock-tolerance=1ms", time.Millisecond},
	} {
		s, cmd := new(settings.Settings), new(cobra.Command)
		s.AddCommonFlags(cmd.Flags())
		s.AddServeFlags(cmd.Flags())
		if err := cmd.Flags().Parse(strings.Fields(test.args)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(cmd, new(command.Process)); err != nil || s.ClockTolerance != test.want {
			t.Errorf("%q: %v, %v; want %v", test.args, s.ClockTolerance, err, test.want)
		}
	}
}

func TestAcceptedCaveats(t *testing.T) {
	for text, want := range map[string]string{ // a word of the error; empty: none
		"": "", "commitlog_sync": "", "replication_factor, commitlog_sync": "",
		"node_clocks": `"node_clocks" is not known: use one of commitlog_sync, replication_factor`, "commitlog_sync,": `"" is not known`,
	} {
		s, cmd := new(settings.Settings), new(cobra.Command)
		s.AddServeFlags(cmd.Flags())
		err := cmd.ParseFlags([]string{"--accept-caveats=" + text})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if given := len(strings.Fields(text)); err == nil && len(s.AcceptedCaveats) != given {
			t.Errorf("%q: %v, want %d", text, s.AcceptedCaveats, given)
		}
	}
}

// TestHowGatewaysIdentifyIsCommon to all instances that were told: of the others, perhaps none is asked by a gateway.
func TestHowGatewaysIdentifyIsCommon(t *testing.T) {
	const name = "forward-auth-identify"
	for given, want := range map[string]string{
		"": "", "ip": "", "user": "user", "header:X-Tenant, ip": "header:X-Tenant,ip", "ip,user": "ip,user",
	} {
		s, cmd := new(settings.Settings), new(cobra.Command)
		s.AddServeFlags(cmd.Flags())
		var args []string
		if given != "" {
			args = append(args, "--"+name+"="+given)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if got := s.Common()[name]; got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}

func TestSerialConsistency(t *testing.T) {
	config := clitest.Write(t, "c.yaml", "serial-consistency: serial\n")
	for _, test := range []struct {
		name    string
		environ []string
		args    []string
		want    policy.Level
	}{
		{"unless given", nil, nil, policy.LevelLocalSerial},
		{"a flag", nil, []string{"--serial-consistency=SERIAL"}, policy.LevelSerial},
		{"a variable", []string{"RATELIMITD_SERIAL_CONSISTENCY=SERIAL"}, nil, policy.LevelSerial},
		{"a file", nil, []string{"--config=" + config}, policy.LevelSerial},
		{"a flag beats both", []string{"RATELIMITD_SERIAL_CONSISTENCY=SERIAL"},
			[]string{"--config=" + config, "--serial-consistency=local_serial"}, policy.LevelLocalSerial},
	} {
		s := new(settings.Settings)
		cmd := new(cobra.Command)
		s.AddCommonFlags(cmd.Flags())
		s.AddCassandraFlags(cmd.Flags())
		if err := cmd.ParseFlags(test.args); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(cmd, &command.Process{Environ: test.environ}); err != nil {
			t.Fatal(err)
		}
		if got := s.SerialConsistency; got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	const want = `"QUORUM" is not a serial level: use one of SERIAL, LOCAL_SERIAL`
	if code, _, stderr := clitest.Execute(t, nil, "serve", "--serial-consistency=QUORUM"); code != command.ExitUsage ||
		!strings.Contains(stderr, want) {
		t.Errorf("exit code %d, errors %q, want %q in them", code, stderr, want)
	}
}
