// Package remote is the client of commands that ask a server: their flags, credentials, answers, and errors with hints.
//
// It knows none of the commands.
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

// SubjectNotes end the help of commands with a POLICY and an IDENTIFIER. The exit codes follow.
const SubjectNotes = `

POLICY is the name of a policy in force. IDENTIFIER is the counted identifier; - reads it from standard
input, so that it is neither in the shell's history nor in the list of processes. One that starts
with a dash goes after --.` + Notes

// Notes end the help of all other commands that ask a server. The exit codes follow.
const Notes = `

Every flag has an environment variable (--server: RATELIMITD_SERVER) and a key in the --config
file (server:). A flag beats the environment, which beats the file.

Exit codes:
`

// maxTimeout is longer than any answer takes.
const maxTimeout = time.Minute

// Asker has the flags of a command that asks a server, and prints the answers.
type Asker struct {
	process *command.Process
	config  string
	server  *url.URL
	timeout time.Duration
	shown   credentials
	output  string
}

// NewAsker adds the flags of all commands that ask a server to cmd.
func NewAsker(p *command.Process, cmd *cobra.Command) *Asker {
	a := &Asker{process: p}
	flags := cmd.Flags()
	command.AddConfig(flags, &a.config)
	command.Var(flags, &a.server, "server", "http://127.0.0.1:8080", "URL", "URL of the server", serverURL)
	a.shown.addFlags(flags)
	command.Var(flags, &a.timeout, "timeout", "5s", "duration", "longest time to wait for the answer",
		command.Between(time.Millisecond, maxTimeout))
	NoFiles(cmd, "server", "timeout")
	cmd.SetFlagErrorFunc(command.PrivateFlagError)
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	return a
}

// NewSubjectAsker is NewAsker for a command with the arguments POLICY and IDENTIFIER.
func NewSubjectAsker(p *command.Process, cmd *cobra.Command) *Asker {
	a := NewAsker(p, cmd)
	cmd.Use += command.SubjectUse
	cmd.Args = command.SubjectArgs
	cmd.ValidArgsFunction = a.completePolicies
	return a
}

// NoFiles turns the completion of file names off for flags of cmd.
func NoFiles(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions) // the flags exist
	}
}

const (
	outputTable = "table"
	outputJSON  = "json"
)

// AddOutput adds the flag of the output format to cmd.
func (a *Asker) AddOutput(cmd *cobra.Command) {
	command.VarP(cmd.Flags(), &a.output, "output", "o", outputTable, "format",
		"format of the output: table, or json as the server sent it", outputFormat)
	formats := cobra.FixedCompletions([]cobra.Completion{outputTable, outputJSON}, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("output", formats) // the flag exists
}

// Load fills in the settings that are not on the command line, from the environment and the file. Warnings go to
// standard error.
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

// Demand is a demand in a request.
type Demand struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier"`
	Cost       *int64 `json:"cost,omitempty"`
	Limit      *int64 `json:"limit,omitempty"`

	ReserveMS   int64  `json:"reserve_ms,omitempty"`
	Reservation string `json:"reservation,omitempty"`
}

// AddLimit adds the flag of a limit that the request brings.
func AddLimit(cmd *cobra.Command, limit *int64) {
	command.Var(cmd.Flags(), limit, "limit", "", "units", "limit of the caller, if the policy takes it from requests",
		WholeNumber)
	NoFiles(cmd, "limit")
}

// BringLimit sets the limit of d if the flag was given to cmd.
func (d *Demand) BringLimit(cmd *cobra.Command, limit *int64) {
	if cmd.Flags().Changed("limit") {
		d.Limit = limit
	}
}

// WholeNumber parses a number of units. The server checks its range.
func WholeNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number up to %d", text, int64(math.MaxInt64))
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

// Print writes an answer, as indented JSON or by table. It prints all of it or nothing.
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

// Show sends a GET to a route below /v1, decodes the answer into out, and prints it as Print does.
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

// outputFormat parses table or json. It quotes nothing, since an identifier that starts with -o is parsed as this flag.
func outputFormat(text string) (string, error) {
	if text != outputTable && text != outputJSON {
		return "", errors.New("use one of table, json")
	}
	return text, nil
}

// HeaderText checks an idempotency key or a token as a server does. Its error does not quote it.
func HeaderText(text string) (string, error) {
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if text == "" || len(text) > 255 || strings.TrimFunc(text, printable) != "" || strings.TrimSpace(text) != text {
		return "", errors.New("use 1 to 255 printable ASCII characters, such as a UUID")
	}
	return text, nil
}

// serverURL parses the URL of a server, or host:port for HTTP.
func serverURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("that is not the URL of a server: use http://HOST:PORT or https://HOST")
	case u.User != nil:
		return nil, errors.New("do not write a name and a password into the URL: every user of this machine may read it")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("use http://HOST:PORT or https://HOST, perhaps with a path, but without ? and #")
	}
	return u, nil
}
