// Package remote asks a ratelimitd server over HTTP, for commands: it has their flags, shows credentials, and says what
// to do where there is no answer.
//
// It does not know which commands there are nor what they ask for.
package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// SubjectNotes end the help of commands that ask about somebody. The exit codes follow.
const SubjectNotes = `

POLICY is the name of a policy in force. IDENTIFIER is who is counted; - reads it from standard
input, so that it is neither in the shell's history nor in the list of processes. One that starts
with a dash goes after --.` + Notes

// Notes end the help of all other commands that ask. The exit codes follow.
const Notes = `

Every flag has an environment variable (--server: RATELIMITD_SERVER) and a key in the --config
file (server:). A flag beats the environment, which beats the file.

Exit codes:
`

// maxTimeout is longer than any server takes that will answer at all.
const maxTimeout = time.Minute

// Asker is what the flags of a command say of the server that it asks, and of how to print what
// that answers.
type Asker struct {
	process *command.Process
	config  string
	server  *url.URL
	timeout time.Duration
	shown   credentials
	output  string
}

// NewAsker gives cmd the flags of all commands that ask.
func NewAsker(p *command.Process, cmd *cobra.Command) *Asker {
	a := &Asker{process: p}
	flags := cmd.Flags()
	command.AddConfig(flags, &a.config)
	command.Var(flags, &a.server, "server", "http://127.0.0.1:8080", "URL", "of the server to ask", serverURL)
	a.shown.addFlags(flags)
	command.Var(flags, &a.timeout, "timeout", "5s", "duration", "the longest to wait for its answer",
		command.Between(time.Millisecond, maxTimeout))
	NoFiles(cmd, "server", "timeout")
	cmd.SetFlagErrorFunc(command.PrivateFlagError)
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	return a
}

// NewSubjectAsker is NewAsker for a command that asks about POLICY and IDENTIFIER.
func NewSubjectAsker(p *command.Process, cmd *cobra.Command) *Asker {
	a := NewAsker(p, cmd)
	cmd.Use += command.SubjectUse
	cmd.Args = command.SubjectArgs
	cmd.ValidArgsFunction = a.completePolicies
	return a
}

// NoFiles has flags of cmd completed by nothing.
func NoFiles(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions) // the flags exist
	}
}

const (
	outputTable = "table"
	outputJSON  = "json"
)

// AddOutput gives cmd the flag that says how to print an answer.
func (a *Asker) AddOutput(cmd *cobra.Command) {
	command.VarP(cmd.Flags(), &a.output, "output", "o", outputTable, "format",
		"of the output: table, or json as the server wrote it", outputFormat)
	formats := cobra.FixedCompletions([]cobra.Completion{outputTable, outputJSON}, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("output", formats) // the flag exists
}

// Load fills in what the command line did not set. There is no log: warnings go to standard error.
func (a *Asker) Load(cmd *cobra.Command) error {
	warnings, err := a.process.Configure(cmd)
	for _, w := range warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "ratelimitd: %s\n", w)
	}
	if err != nil {
		return err
	}
	return a.shown.read(a.process, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)))
}

// Demand is what a request asks for: the policy, the identifier, and how much.
type Demand struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier"`
	Cost       *int64 `json:"cost,omitempty"`
	Limit      *int64 `json:"limit,omitempty"`

	ReserveMS   int64  `json:"reserve_ms,omitempty"`
	Reservation string `json:"reservation,omitempty"`
}

// AddLimit adds the flag of a limit that comes with the request.
func AddLimit(cmd *cobra.Command, limit *int64) {
	command.Var(cmd.Flags(), limit, "limit", "", "units", "that the caller may have, if the policy takes its limit from requests",
		WholeNumber)
	NoFiles(cmd, "limit")
}

// BringLimit has d bring limit, if its flag was given to cmd.
func (d *Demand) BringLimit(cmd *cobra.Command, limit *int64) {
	if cmd.Flags().Changed("limit") {
		d.Limit = limit
	}
}

// WholeNumber reads a flag of units. A number out of the server's range is an error of the server's.
func WholeNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number up to %d", text, int64(math.MaxInt64))
	}
	return n, nil
}

// Subject fills in the flags as Load does, and returns the demand that the arguments name.
func (a *Asker) Subject(cmd *cobra.Command, args []string) (about Demand, err error) {
	if err := a.Load(cmd); err != nil {
		return about, err
	}
	about.Policy, about.Identifier, err = command.Subject(cmd, args)
	return about, err
}

// Client returns a client of the server that the flags name.
func (a *Asker) Client() *Client { return &Client{a.server, a.timeout, &a.shown} }

// Print writes what a server answered: as it came, or as table writes it. Nothing is printed by
// half.
func (a *Asker) Print(cmd *cobra.Command, document []byte, table func(out *bytes.Buffer)) error {
	var out bytes.Buffer
	if a.output == outputJSON {
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

// Show prints what a GET of a route below /v1 answers. It makes into out of the answer, which table writes.
func (a *Asker) Show(cmd *cobra.Command, route string, out any, table func(out *bytes.Buffer)) error {
	if err := a.Load(cmd); err != nil {
		return err
	}
	document, err := a.Client().Get(cmd.Context(), route, out)
	if err != nil {
		return err
	}
	return a.Print(cmd, document, table)
}

// outputFormat is OneOf without the quotation: an identifier that starts with -o
// comes to stand here.
func outputFormat(text string) (string, error) {
	if text != outputTable && text != outputJSON {
		return "", errors.New("use one of table, json")
	}
	return text, nil
}

// HeaderText refuses what a server takes for no idempotency key and no token. It does not repeat
// it.
func HeaderText(text string) (string, error) {
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if text == "" || len(text) > 255 || strings.TrimFunc(text, printable) != "" || strings.TrimSpace(text) != text {
		return "", errors.New("use 1 to 255 printable ASCII characters, such as a UUID")
	}
	return text, nil
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
