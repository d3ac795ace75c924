package admin

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func newOverrideSet(p *command.Process) *cobra.Command {
	o := new(overrideFlags)
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Allow or block an identifier, or all with a prefix, or give them other limits",
		Long: "Allow or block an identifier, or give it other limits, for as long as --for says. It replaces an earlier\n" +
			"override of the same identifier. With --prefix, it is for all identifiers with that prefix. An identifier's own\n" +
			"override comes first, then that of its longest prefix. A prefix is stored in the clear.\n" +
			"Allowed calls are not counted; under other limits, all calls are counted as before." +
			remote.SubjectNotes + "  0  in force on every instance within a second\n  2  error: standard error says why",
		Example: `  # a customer may send more today
  ratelimitd override set sms-send +4915112345678 --limit per-hour=50 --for 1d

  # keep an attacker away
  ratelimitd override set login 203.0.113.7 --block --for 7d

  # never limit a known range of numbers
  ratelimitd override set sms-send --prefix +491555 --allow --for ever`,
	}
	asker := newPrefixAsker(p, cmd)
	o.add(cmd.Flags())
	asker.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := asker.about(cmd, args)
		if err != nil {
			return err
		}
		body, err := o.body(about)
		if err != nil {
			return err
		}
		q := &remote.Question{Route: overridesRoute, Body: body, Policy: about.Policy, Aftermath: afterOverride}
		answer, err := asker.Client().Ask(cmd.Context(), q)
		if err != nil {
			return err
		}
		return asker.print(cmd, q, answer)
	}
	return cmd
}

// overrideFlags are the flags of an override.
type overrideFlags struct {
	allow, block bool
	limits       []string
	lasts        lasting
}

// lasting is how long an override lasts. The zero value is not set.
type lasting struct {
	ever bool
	time time.Duration
}

func (o *overrideFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&o.allow, "allow", false, "allow everything, and count nothing")
	flags.BoolVar(&o.block, "block", false, "deny everything")
	flags.StringArrayVar(&o.limits, "limit", nil, "`NAME=UNITS` of a limit of the policy, or NAME=UNITS/BURST; may be repeated")
	command.Var(flags, &o.lasts, "for", "", "duration", "how long the override lasts: 1s to 31d, or ever", overrideTime)
}

func overrideTime(text string) (lasting, error) {
	if text == "ever" {
		return lasting{ever: true}, nil
	}
	d, err := policy.ParseWindow(text)
	if err != nil || d < overrides.Shortest || d > overrides.Longest {
		return lasting{}, errors.New("use a duration from 1s to 31d, such as 30m or 7d, or ever")
	}
	return lasting{time: d}, nil
}

// newOverrideBody is the body of a request that sets an override.
type newOverrideBody struct {
	overridden
	Kind        string                 `json:"kind"`
	Limits      []demand.LimitOverride `json:"limits,omitempty"`
	ExpiresInMS *int64                 `json:"expires_in_ms"` // nil: it has no end
}

// body returns the body of the request for the flags.
func (o *overrideFlags) body(about overridden) (*newOverrideBody, error) {
	body := &newOverrideBody{overridden: about}
	given := 0
	for _, kind := range []struct {
		name  policy.OverrideKind
		given bool
	}{{policy.OverrideAllow, o.allow}, {policy.OverrideBlock, o.block}, {policy.OverrideLimits, len(o.limits) > 0}} {
		if kind.given {
			body.Kind, given = string(kind.name), given+1
		}
	}
	if given != 1 {
		return nil, errors.New("give one of --allow, --block and --limit NAME=UNITS")
	}
	switch {
	case o.lasts == lasting{}:
		return nil, errors.New("give --for: a duration from 1s to 31d, or ever")
	case !o.lasts.ever:
		ms := o.lasts.time.Milliseconds()
		body.ExpiresInMS = &ms
	}
	for _, text := range o.limits {
		l, err := parseLimit(text)
		if err != nil {
			return nil, err
		}
		body.Limits = append(body.Limits, l)
	}
	return body, nil
}

// parseLimit reads NAME=UNITS or NAME=UNITS/BURST.
func parseLimit(text string) (l demand.LimitOverride, err error) {
	wrong := errors.New("--limit: write NAME=UNITS such as per-hour=50 or, of a token bucket, NAME=UNITS/BURST")
	name, units, found := strings.Cut(text, "=")
	units, burst, bursts := strings.Cut(units, "/")
	if l.Name = name; !found || name == "" {
		return l, wrong
	}
	if l.Limit, err = strconv.ParseInt(units, 10, 64); err != nil {
		return l, wrong
	}
	if bursts {
		if l.Burst, err = strconv.ParseInt(burst, 10, 64); err != nil || l.Burst < 1 {
			return l, wrong
		}
	}
	return l, nil
}
