// Package policies_test checks that the policies of this folder keep the promises of their comments.
package policies_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

// step is a take, or a reset, and its expected outcome.
type step struct {
	after   time.Duration // since the previous step
	reset   bool
	demands string // policies and identifiers, in turn
	want    string // the policy that denies; empty: allowed
}

// repeat returns n steps, with the number of the step instead of %d in the identifier.
func repeat(n int, s step) []step {
	steps := make([]step, n)
	for i := range steps {
		steps[i] = s
		if strings.Contains(s.demands, "%") {
			steps[i].demands = fmt.Sprintf(s.demands, i)
		}
	}
	return steps
}

func story(parts ...[]step) (all []step) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func TestStories(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		steps []step
	}{
		"a code too soon, and too many": {"one-time-codes.yaml", story(
			[]step{
				{demands: "otp-send +4915112345678 otp-send-ip 203.0.113.7"},
				{after: 29 * time.Second, demands: "otp-send +49(0)151/12345678 otp-send-ip 203.0.113.8", want: "otp-send"},
			},
			repeat(4, step{after: time.Minute, demands: "otp-send +4915112345678"}),
			[]step{
				{after: time.Minute, demands: "otp-send +4915112345678", want: "otp-send"},
				{demands: "otp-send +4915112345679"},
			},
		)},
		"numbers in a row": {"one-time-codes.yaml", story(
			repeat(30, step{demands: "otp-send +4915112300%03d"}),
			[]step{{demands: "otp-send +4915112300999", want: "otp-send-range"}, {demands: "otp-send +4915112400999"}},
		)},
		"neighbours": {"one-time-codes.yaml", story(
			repeat(200, step{demands: "otp-send-ip 203.0.113.%d"}),
			[]step{{demands: "otp-send-ip 203.0.113.250", want: "otp-send-net"}, {demands: "otp-send-ip 203.0.114.1"}},
			repeat(20, step{demands: "otp-send-ip 2001:db8::%x"}),
			[]step{{demands: "otp-send-ip 2001:db8::ffff", want: "otp-send-ip"}},
		)},
		"a code that is guessed at": {"one-time-codes.yaml", story(
			repeat(5, step{demands: "otp-verify +4915112345678"}),
			[]step{
				{demands: "otp-verify +4915112345678", want: "otp-verify"},
				{after: 59 * time.Minute, demands: "otp-verify +49-151-12345678", want: "otp-verify"},
			},
			repeat(5, step{after: 2 * time.Minute, demands: "otp-verify +4915112345678"})[:1],
		)},
		"a code that was right": {"one-time-codes.yaml", story(
			repeat(5, step{demands: "otp-verify +4915112345678"}),
			[]step{{reset: true, demands: "otp-verify +4915112345678"}, {demands: "otp-verify +4915112345678"}},
		)},
		"a password that is guessed at": {"login.yaml", story(
			repeat(5, step{demands: "login-account Anna login-ip 203.0.113.%d"}),
			[]step{
				{demands: "login-account ANNA login-ip 198.51.100.1", want: "login-account"},
				{after: 5 * time.Minute, demands: "login-account anna login-ip 198.51.100.1"},
				{reset: true, demands: "login-account aNNa"},
			},
			repeat(100, step{demands: "login-account somebody%d login-ip 192.0.2.1"}),
			[]step{{demands: "login-account anna login-ip 192.0.2.1", want: "login-ip"}},
		)},
		"one mailbox": {"registration.yaml", []step{
			{demands: "signup-email anna.bauer+1@gmail.com signup-ip 203.0.113.7"},
			{demands: "signup-email AnnaBauer@googlemail.com signup-ip 203.0.113.8", want: "signup-email"},
			{demands: "signup-email anna.bauer@example.com signup-ip 203.0.113.7"},
		}},
		"a script that registers": {"registration.yaml", story(
			repeat(10, step{demands: "signup-email a%d@example.com signup-ip 203.0.113.7"}),
			[]step{
				{demands: "signup-email b@example.com signup-ip 203.0.113.7", want: "signup-ip"},
				{after: 9 * time.Minute, demands: "signup-email b@example.com signup-ip 203.0.113.7", want: "signup-ip"},
			},
			repeat(600, step{demands: "signup-email c%d@example.com"}), // its domain is in mode shadow
		)},
		"mails that annoy": {"password-reset.yaml", story(
			repeat(3, step{after: time.Minute, demands: "reset-email anna@example.com reset-ip 203.0.113.%d"}),
			[]step{
				{after: time.Minute, demands: "reset-email Anna+x@example.com reset-ip 192.0.2.1", want: "reset-email"},
				{after: time.Hour, demands: "reset-email anna@example.com reset-ip 192.0.2.1"},
			},
			repeat(10, step{demands: "reset-token 203.0.113.7"}),
			[]step{{demands: "reset-token 203.0.113.7", want: "reset-token"}},
		)},
		"a key, and nobody's": {"public-api.yaml", story(
			repeat(60, step{demands: "api-key k"}),
			[]step{{demands: "api-key k", want: "api-key"}, {after: time.Second, demands: "api-key k"}},
			repeat(60, step{demands: "api-anonymous 2001:db8::%x"}),
			[]step{{demands: "api-anonymous 2001:db8::ffff", want: "api-anonymous"}, {demands: "api-anonymous 2001:db8:0:1::"}},
		)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := ratelimittest.New(t, read(t, c.file))
			service.SetTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) // only the story advances the clock
			limits := service.Client(nil)
			for i, s := range c.steps {
				service.Advance(s.after)
				if got := s.act(t, limits); got != s.want {
					t.Fatalf("step %d, %s: denied by %q, want %q", i, s.demands, got, s.want)
				}
			}
		})
	}
}

// act returns the policy that denies s, if one does.
func (s *step) act(t *testing.T, limits *client.Client) string {
	t.Helper()
	var demands []client.Demand
	words := strings.Fields(s.demands)
	for i := 0; i < len(words); i += 2 {
		demands = append(demands, client.Demand{Policy: words[i], Identifier: words[i+1]})
	}
	if s.reset {
		if err := limits.Reset(t.Context(), demands[0].Policy, demands[0].Identifier); err != nil {
			t.Fatal(err)
		}
		return ""
	}
	d, err := limits.Take(t.Context(), demands...)
	if err != nil {
		t.Fatal(err)
	}
	if d.Allowed {
		return ""
	}
	return d.Policy
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestFiles checks that each file can be served, alone and with the others, and says what it
// is for.
func TestFiles(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	names := make(map[string]string)
	for _, file := range files {
		policies, err := policyfile.Load(file)
		if err != nil {
			t.Error(err)
		}
		for _, p := range policies {
			if names[p.Name] != "" {
				t.Errorf("%s and %s both have a policy %s, so they can't be used together", file, names[p.Name], p.Name)
			}
			names[p.Name] = file
			if p.Description == "" {
				t.Errorf("%s: %s has no description", file, p.Name)
			}
		}
	}
}
