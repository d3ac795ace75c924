package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/handshake"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// The routes of overrides, below /v1.
const (
	verbOverride       = "overrides"
	verbOverrideGet    = "overrides/get"
	verbOverrideDelete = "overrides/delete"
)

// overrideFlags say what an override does.
type overrideFlags struct {
	allow, block bool
	limits       []string
	lasts        time.Duration
}

func (o *overrideFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&o.allow, "allow", false, "allow everything, and count nothing")
	flags.BoolVar(&o.block, "block", false, "deny everything")
	flags.StringArrayVar(&o.limits, "limit", nil, "`NAME=UNITS` of a limit of the policy, or NAME=UNITS/BURST; may be repeated")
	parsed(flags, &o.lasts, "for", "", "duration", "until it ends, 1s to 31d", overrideTime)
}

func overrideTime(text string) (time.Duration, error) {
	d, err := limiter.ParseWindow(text)
	if err != nil || d < limiter.MinOverride || d > limiter.MaxOverride {
		return 0, errors.New("use a duration from 1s to 31d, such as 30m or 7d")
	}
	return d, nil
}

// newOverrideBody is the body of a request that sets an override.
type newOverrideBody struct {
	demand
	Kind        string                  `json:"kind"`
	Limits      []limiter.LimitOverride `json:"limits,omitempty"`
	ExpiresInMS int64                   `json:"expires_in_ms"`
}

// body returns what the flags ask for.
func (o *overrideFlags) body(about demand) (*newOverrideBody, error) {
	body := &newOverrideBody{demand: about, ExpiresInMS: o.lasts.Milliseconds()}
	given := 0
	for _, kind := range []struct {
		name  limiter.OverrideKind
		given bool
	}{{limiter.OverrideAllow, o.allow}, {limiter.OverrideBlock, o.block}, {limiter.OverrideLimits, len(o.limits) > 0}} {
		if kind.given {
			body.Kind, given = string(kind.name), given+1
		}
	}
	if given != 1 {
		return nil, errors.New("give one of --allow, --block and --limit NAME=UNITS")
	}
	if o.lasts == 0 {
		return nil, errors.New("give --for: an override ends by itself, after 31d at the latest")
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
func parseLimit(text string) (l limiter.LimitOverride, err error) {
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

func newOverride(environ []string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "override",
		Short: "Decide an identifier otherwise than its policy says, for a while",
		Long:  "Allow or block an identifier, or give it other limits, on every instance within a second, and see what is in force.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newOverrideSet(environ), newOverrideGet(environ), newOverrideDelete(environ), newOverrideList(environ))
	return cmd
}

func newOverrideSet(environ []string) *cobra.Command {
	s, o := new(askSettings), new(overrideFlags)
	cmd := newAsk(environ, "set", s, &cobra.Command{
		Short: "Allow or block an identifier, or give it other limits, for a while",
		Long: "Allow or block an identifier, or give it other limits, until --for is over. It takes the place of an earlier\n" +
			"override of the same identifier. What is allowed is not counted; under other limits, all is counted as ever." +
			targetNotes + "  0  in force on every instance within a second\n  2  error: standard error says why",
		Example: `  # a customer may send more today
  ratelimitd override set sms-send +4915112345678 --limit per-hour=50 --for 1d

  # keep an attacker away
  ratelimitd override set login 203.0.113.7 --block --for 7d`,
	})
	o.add(cmd.Flags())
	addOutput(s, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := s.prepare(cmd, environ, args)
		if err != nil {
			return err
		}
		body, err := o.body(about)
		if err != nil {
			return err
		}
		q := &question{verb: verbOverride, body: body, policy: about.Policy}
		return s.printOverride(cmd, q)
	}
	return cmd
}

func newOverrideGet(environ []string) *cobra.Command {
	s := new(askSettings)
	cmd := newAsk(environ, "get", s, &cobra.Command{
		Short: "Print the override of an identifier",
		Long: "Print the override of an identifier under a policy." + targetNotes +
			"  0  it is printed\n  1  there is none\n  2  error: standard error says why",
		Example: "  ratelimitd override get sms-send +4915112345678",
	})
	addOutput(s, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := s.prepare(cmd, environ, args)
		if err != nil {
			return err
		}
		return s.printOverride(cmd, &question{verb: verbOverrideGet, body: about, policy: about.Policy})
	}
	return cmd
}

func newOverrideDelete(environ []string) *cobra.Command {
	s := new(askSettings)
	cmd := newAsk(environ, "delete", s, &cobra.Command{
		Short: "End the override of an identifier",
		Long: "End the override of an identifier under a policy, on every instance within a second." + targetNotes +
			"  0  ended, or there was none\n  2  error: standard error says why",
		Example: "  ratelimitd override delete sms-send +4915112345678",
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := s.prepare(cmd, environ, args)
		if err != nil {
			return err
		}
		if err := s.client().reset(cmd.Context(), &question{verb: verbOverrideDelete, body: about, policy: about.Policy}); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "deleted")
		return err
	}
	return cmd
}

func newOverrideList(environ []string) *cobra.Command {
	s := new(askSettings)
	cmd := newAsk(environ, "list", s, &cobra.Command{
		Short: "List the overrides in force",
		Long: "List the overrides in force, the one that ends first first, by hashed key: \"ratelimitd key\" prints that of an\n" +
			"identifier." + askNotes + "  0  they are printed\n  2  error: standard error says why",
		Example: "  ratelimitd override list -o json",
	})
	cmd.Use, cmd.Args, cmd.ValidArgsFunction = "list", cobra.NoArgs, cobra.NoFileCompletions
	addOutput(s, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.load(cmd, environ); err != nil {
			return err
		}
		document, err := s.client().get(cmd.Context(), verbOverride)
		if err != nil {
			return err
		}
		var list struct {
			Overrides []overrideInForce
			Total     int
		}
		if err := json.Unmarshal(document, &list); err != nil {
			return &askError{what: "the server's answer cannot be read: " + err.Error()}
		}
		return s.print(cmd, document, func(out *bytes.Buffer) {
			writeOverrides(out, list.Overrides)
			if more := list.Total - len(list.Overrides); more > 0 {
				fmt.Fprintf(out, "and %d more\n", more)
			}
		})
	}
	return cmd
}

// addOutput adds -o to a command that prints what a server answers.
func addOutput(s *askSettings, cmd *cobra.Command) {
	s.addOutput(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{outputTable, outputJSON}, noFiles))
}

// overrideInForce is an override as a server answers it.
type overrideInForce struct {
	Key         string                  `json:"key"`
	Policy      string                  `json:"policy"`
	Kind        string                  `json:"kind"`
	Limits      []limiter.LimitOverride `json:"limits"`
	ExpiresInMS int64                   `json:"expires_in_ms"`
	By          string                  `json:"by"`
}

// printOverride asks q, and prints the override that is answered.
func (s *askSettings) printOverride(cmd *cobra.Command, q *question) error {
	c := s.client()
	a, err := c.ask(cmd.Context(), q)
	if err != nil {
		return err
	}
	var o overrideInForce
	if a.status == http.StatusOK && a.mediaType == mediaJSON && json.Unmarshal(a.body, &o) == nil && o.Kind != "" {
		return s.print(cmd, a.body, func(out *bytes.Buffer) { writeOverrides(out, []overrideInForce{o}) })
	}
	if p := a.problem(); q.verb == verbOverrideGet && p != nil && a.status == http.StatusNotFound && p.Field == "" {
		fmt.Fprintln(cmd.OutOrStdout(), "no override")
		return errDenied
	}
	return c.refused(cmd.Context(), q, a)
}

// print writes what a server answered: as it came, or as table writes it.
func (s *askSettings) print(cmd *cobra.Command, document []byte, table func(out *bytes.Buffer)) error {
	var out bytes.Buffer // so that nothing is printed by half
	if s.output == outputJSON {
		if err := json.Indent(&out, bytes.TrimSpace(document), "", "  "); err != nil {
			return err
		}
		out.WriteByte('\n')
	} else {
		table(&out)
	}
	_, err := cmd.OutOrStdout().Write(out.Bytes())
	return err
}

func writeOverrides(out *bytes.Buffer, overrides []overrideInForce) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "KEY\tPOLICY\tOVERRIDE\tENDS\tBY")
	for i := range overrides {
		o := &overrides[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", printable(o.Key[:min(len(o.Key), shownKeyDigits)]), printable(o.Policy), printable(o.what()),
			duration(o.ExpiresInMS), printable(o.By))
	}
	_ = table.Flush() // into a buffer
}

// shownKeyDigits are as many as the audit log has.
const shownKeyDigits = 16

// what says what o does.
func (o *overrideInForce) what() string {
	if o.Kind != string(limiter.OverrideLimits) {
		return o.Kind
	}
	var limits []string
	for _, l := range o.Limits {
		text := l.Name + "=" + strconv.FormatInt(l.Limit, 10)
		if l.Burst > 0 {
			text += "/" + strconv.FormatInt(l.Burst, 10)
		}
		limits = append(limits, text)
	}
	return strings.Join(limits, " ")
}

// get returns the answer to a GET of a route below /v1.
func (c *client) get(ctx context.Context, route string) ([]byte, error) {
	a, _, err := c.exchange(ctx, http.MethodGet, route, nil, nil)
	if err != nil && handshake.FailureOf(err) != handshake.None {
		return nil, c.noTLS(err, &question{})
	}
	if err != nil {
		return nil, &askError{fmt.Sprintf("%s cannot be reached: %v", c.server, err), `Is "ratelimitd serve" running there? ` + serverNamedBy}
	}
	if a.status != http.StatusOK || a.mediaType != mediaJSON {
		return nil, c.refused(ctx, &question{}, a)
	}
	return a.body, nil
}
