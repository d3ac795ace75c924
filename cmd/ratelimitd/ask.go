package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errDenied ends a command whose answer, which is printed, is no.
var errDenied = errors.New("denied")

// The commands that ask a server, each called like the route below /v1 that it
// asks.
const (
	verbCheck  = "check"
	verbRecord = "record"
	verbTake   = "take"
	verbReset  = "reset"
	verbRefund = "refund"
)

// fromStdin stands for an identifier or a receipt that is read from standard input.
const fromStdin = "-"

// targetNotes and askNotes end the help of every command that asks about somebody.
const targetNotes = `

POLICY is the name of a policy in force. IDENTIFIER is who is counted; - reads it from standard
input, so that it is neither in the shell's history nor in the list of processes. One that starts
with a dash goes after --.` + askNotes

// askNotes end the help of every command that asks.
const askNotes = `

Every flag has an environment variable (--server: RATELIMITD_SERVER) and a key in the --config
file (server:). A flag beats the environment, which beats the file.

Exit codes:
`

// decisionCodes are the exit codes of check and take.
const decisionCodes = `  0  allowed
  1  denied
  2  error: standard error says why`

func newCheck(environ []string) *cobra.Command {
	return newDecision(environ, verbCheck, &cobra.Command{
		Short: "Ask whether an event would be allowed now; record nothing",
		Long: "Ask whether an event would be allowed now. Nothing is recorded.\n\n" +
			"With --reserve the units are held for that long if it is allowed, and the answer has a reservation:\n" +
			"give it to record, and nothing is counted twice." + targetNotes + decisionCodes,
		Example: `  # may this number have another code?
  ratelimitd check sms-send +4915112345678

  # the server's whole answer
  ratelimitd check sms-send +4915112345678 -o json

  # check, then record, with nobody in between
  held=$(ratelimitd check sms-send +4915112345678 --reserve 30s -o json | jq -r .reservation)
  ratelimitd record sms-send +4915112345678 --reservation "$held"`,
	})
}

func newRecord(environ []string) *cobra.Command {
	return newDecision(environ, verbRecord, &cobra.Command{
		Short: "Record an event, whatever the limit",
		Long: "Record an event, whatever the limit, and print where that leaves the identifier." + targetNotes + `  0  recorded
  2  error: standard error says why, and what became of the event`,
		Example: `  # an upload of 4096 bytes
  ratelimitd record upload-bytes alice --cost 4096

  # once, however often it is tried
  ratelimitd record upload-bytes alice --cost 4096 --idempotency-key upload-17`,
	})
}

func newTake(environ []string) *cobra.Command {
	return newDecision(environ, verbTake, &cobra.Command{
		Short: "Check and record an event as one step",
		Long: "Check and record as one step: the event is recorded if it is allowed." + targetNotes + decisionCodes +
			", and what became of the event",
		Example: `  # one code, with the number from standard input
  printf %s "$NUMBER" | ratelimitd take sms-send -

  # in a script: mail is sent only within the limit
  ratelimitd take mail alice >/dev/null && send-mail alice

  # another server
  ratelimitd take login 203.0.113.7 --server https://limits.example.org`,
	})
}

func newReset(environ []string) *cobra.Command {
	s := new(askSettings)
	cmd := newAsk(environ, verbReset, s, &cobra.Command{
		Short: "Forget what was counted for an identifier under a policy",
		Long: "Forget what was counted for an identifier under a policy, on every instance within a second." + targetNotes +
			"  0  forgotten, or never seen\n  2  error: standard error says why",
		Example: `  # after a false alarm
  ratelimitd reset login 203.0.113.7`,
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := s.prepare(cmd, environ, args)
		if err != nil {
			return err
		}
		if err := s.client().reset(cmd.Context(), &question{verb: verbReset, body: about, policy: about.Policy}); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), verbReset)
		return err
	}
	return cmd
}

// newDecision makes cmd the command that asks by verb and prints the decision.
func newDecision(environ []string, verb string, cmd *cobra.Command) *cobra.Command {
	s := new(askSettings)
	newAsk(environ, verb, s, cmd)
	s.addFlagsOf(verb, cmd.Flags())
	for _, name := range []string{"cost", "reserve", "reservation", "idempotency-key"} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions) // it fails for those of other verbs
	}
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{outputTable, outputJSON}, noFiles))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := s.prepare(cmd, environ, args)
		if err != nil {
			return err
		}
		d, err := s.client().decide(cmd.Context(), s.question(verb, about))
		if err != nil {
			return err
		}
		if err := printDecision(cmd.OutOrStdout(), s.output, verb, d); err != nil {
			return err
		}
		if !*d.Allowed {
			return errDenied
		}
		return nil
	}
	return cmd
}

// newAsk gives cmd what all commands that ask have.
func newAsk(environ []string, verb string, s *askSettings, cmd *cobra.Command) *cobra.Command {
	cmd.Use = verb + " POLICY IDENTIFIER"
	cmd.Args = policyAndIdentifier
	cmd.ValidArgsFunction = s.completePolicies(environ)
	cmd.SetFlagErrorFunc(askFlagError)
	s.addServerFlags(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("server", cobra.NoFileCompletions) // the flags exist
	_ = cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions)
	return cmd
}

// demand is the body of a request.
type demand struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier"`
	Cost       *int64 `json:"cost,omitempty"`

	ReserveMS   int64  `json:"reserve_ms,omitempty"`
	Reservation string `json:"reservation,omitempty"`
}

// question returns what verb asks about somebody by these settings.
func (s *askSettings) question(verb string, about demand) *question {
	about.Cost, about.ReserveMS, about.Reservation = &s.cost, s.reserve.Milliseconds(), s.reservation
	return &question{verb: verb, body: about, policy: about.Policy, idempotencyKey: s.idempotencyKey, holds: s.reserve > 0}
}

// prepare fills in the settings and returns whom to ask about.
func (s *askSettings) prepare(cmd *cobra.Command, environ, args []string) (demand, error) {
	if err := s.load(cmd, environ); err != nil {
		return demand{}, err
	}
	return demandOf(cmd, args)
}

// demandOf returns whom the arguments POLICY and IDENTIFIER are about.
func demandOf(cmd *cobra.Command, args []string) (demand, error) {
	about := demand{Policy: args[0], Identifier: args[1]}
	if about.Identifier == fromStdin {
		var err error
		if about.Identifier, err = readLine(cmd.Context(), cmd.InOrStdin(), "identifier"); err != nil {
			return demand{}, err
		}
	}
	if !utf8.ValidString(about.Policy) || !utf8.ValidString(about.Identifier) {
		return demand{}, errors.New("POLICY and IDENTIFIER must be UTF-8, which JSON is made of")
	}
	return about, nil
}

// askSettings are the settings of the commands that ask.
type askSettings struct {
	config  string
	server  *url.URL
	timeout time.Duration
	shown   credentials
	output  string
	cost    int64

	reserve        time.Duration // of check; 0: nothing is held
	reservation    string        // of record
	idempotencyKey string        // of record and take
}

const (
	outputTable = "table"
	outputJSON  = "json"
)

// maxAskTimeout is longer than any server takes that will answer at all.
const maxAskTimeout = time.Minute

func (s *askSettings) addServerFlags(flags *pflag.FlagSet) {
	flags.StringVar(&s.config, "config", "", "YAML `file` that sets any other flag by its name")
	parsed(flags, &s.server, "server", "http://127.0.0.1:8080", "URL", "of the server to ask", serverURL)
	s.shown.addFlags(flags)
	parsed(flags, &s.timeout, "timeout", "5s", "duration", "the longest to wait for its answer", between(time.Millisecond, maxAskTimeout))
}

// addDecisionFlags adds all flags that check, record and take have.
func (s *askSettings) addDecisionFlags(flags *pflag.FlagSet) {
	s.addCommonDecisionFlags(flags)
	s.addReserve(flags)
	s.addReservation(flags)
	s.addIdempotencyKey(flags)
}

// addFlagsOf adds the flags that verb has.
func (s *askSettings) addFlagsOf(verb string, flags *pflag.FlagSet) {
	s.addCommonDecisionFlags(flags)
	if verb == verbCheck {
		s.addReserve(flags)
	} else {
		s.addIdempotencyKey(flags)
	}
	if verb == verbRecord {
		s.addReservation(flags)
	}
}

func (s *askSettings) addReserve(flags *pflag.FlagSet) {
	parsed(flags, &s.reserve, "reserve", "", "duration", "to hold the units for if it is allowed, 1s to 1h", between(time.Second, time.Hour))
}

func (s *askSettings) addReservation(flags *pflag.FlagSet) {
	flags.StringVar(&s.reservation, "reservation", "", "`token` that a check with --reserve answered: what it holds is recorded")
}

func (s *askSettings) addIdempotencyKey(flags *pflag.FlagSet) {
	parsed(flags, &s.idempotencyKey, "idempotency-key", "", "key", "of this event: tried again with the same key, it counts once", headerText)
}

func (s *askSettings) addCommonDecisionFlags(flags *pflag.FlagSet) {
	parsed(flags, &s.cost, "cost", "1", "units", "that the event costs", wholeNumber)
	s.addOutput(flags)
}

func (s *askSettings) addOutput(flags *pflag.FlagSet) {
	flags.VarP(newValue(&s.output, outputTable, "format", outputFormat), "output", "o",
		"of what is printed: table, or json as the server wrote it")
}

// load fills in what the command line did not set. There is no log: what is
// noteworthy goes to standard error.
func (s *askSettings) load(cmd *cobra.Command, environ []string) error {
	warnings, err := configure(cmd.Flags(), environ)
	for _, w := range warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "ratelimitd: %s\n", w)
	}
	if err != nil {
		return err
	}
	return s.shown.read(environ)
}

// outputFormat is oneOf without the quotation: an identifier that starts with -o
// comes to stand here.
func outputFormat(text string) (string, error) {
	if text != outputTable && text != outputJSON {
		return "", errors.New("use one of table, json")
	}
	return text, nil
}

// headerText refuses what a server takes for no key. It does not repeat it.
func headerText(text string) (string, error) {
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if text == "" || len(text) > 255 || strings.TrimFunc(text, printable) != "" || strings.TrimSpace(text) != text {
		return "", errors.New("use 1 to 255 printable ASCII characters, such as a UUID")
	}
	return text, nil
}

func wholeNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil { // what is out of the server's range, the server says
		return 0, fmt.Errorf("%q is no whole number up to %d", text, int64(math.MaxInt64))
	}
	return n, nil
}

// serverURL parses the URL of a server; host:port is one of HTTP.
func serverURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("that is no URL of a server: use http://HOST:PORT or https://HOST")
	case u.User != nil:
		return nil, errors.New("a URL is no place for a name and a password: everybody on this machine may read it")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("use http://HOST:PORT or https://HOST, perhaps with a path, but without ? and #")
	}
	return u, nil
}

func policyAndIdentifier(_ *cobra.Command, args []string) error {
	if len(args) != 2 { // their number only: one of them may be an identifier
		return fmt.Errorf("give POLICY and IDENTIFIER, not %s; one with spaces needs quotes, and - reads the identifier from standard input",
			count(len(args), "argument", "arguments"))
	}
	return nil
}

// maxInputBytes bounds what is read from standard input: a body of a request takes no
// more.
const maxInputBytes = 64 << 10

// readLine reads the one line of in, which is an identifier or a receipt, until its end
// or until ctx ends. A read from a terminal cannot be called off: it ends with the
// process then.
func readLine(ctx context.Context, in io.Reader, what string) (string, error) {
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(in, maxInputBytes+1))
		read <- result{text, err}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			return "", fmt.Errorf("reading the %s from standard input: %w", what, r.err)
		}
		return lineIn(r.text, what)
	case <-ctx.Done():
		return "", fmt.Errorf("interrupted while reading the %s from standard input", what)
	}
}

// lineIn returns text without the newline at its end.
func lineIn(text []byte, what string) (string, error) {
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case len(text) > maxInputBytes:
		return "", fmt.Errorf("standard input is longer than any %s", what)
	case line == "":
		return "", fmt.Errorf("there is no %s on standard input", what)
	case strings.ContainsAny(line, "\r\n"):
		return "", fmt.Errorf("there is more than one line on standard input: give one %s, on one line", what)
	}
	return line, nil
}
