package tools

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/simulate"
	"github.com/ratelimitd/ratelimitd/internal/simulate/accesslog"
	"github.com/ratelimitd/ratelimitd/internal/simulate/replay"
	"github.com/ratelimitd/ratelimitd/internal/simulate/report"
)

// simulation has the flags of simulate.
type simulation struct {
	simulate.Options
	policies, against string // names of files
	asJSON            bool
	html              string // the name of a file
}

func newSimulate() *cobra.Command {
	s := new(simulation)
	cmd := &cobra.Command{
		Use:   "simulate --policies FILE LOG...",
		Short: "Show what policies would have denied in access logs",
		Long: "Show what policies would have denied in access logs: how many requests, of how many callers, and which limits\n" +
			"would have spared nearly all of them.\n\n" +
			"It needs no server: the engine of a server decides each line at its time in the log. LOG is the name of a\n" +
			"file, which may be compressed by gzip or zstd, or - for standard input; several are read together in the order of\n" +
			"time. Callers are shown as hashes that nobody can look up, unless with --show-identifiers.\n\n" +
			"A field is a variable of nginx, a column, or a member of JSON such as request.headers.X-Api-Key.0. Every\n" +
			"format of requests has ip, method, path (without the query) and uri. Clients are counted by ip as on a server:\n" +
			"a /64 of IPv6 is one client. A line without a client's address counts as unreadable.",
		Example: `  # how many would 5 logins a minute hit?
  ratelimitd simulate --policies policies.yaml --policy login --where method=POST --where path=/login access.log*`,
		Args: command.Args(1, 0, "at least one LOG", "- is standard input"),
		RunE: s.run,
	}
	s.addFlags(cmd.Flags())
	return cmd
}

func (s *simulation) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&s.policies, "policies", "", "YAML `file` of policies to try")
	flags.StringVar(&s.against, "against", "", "YAML `file` of policies to compare with, such as those in force")
	flags.Var(&list[simulate.Ask]{into: &s.Asks, kind: "policy[=field]", parse: simulate.ParseAsk}, "policy",
		"policy that each line asks for, and the field of its identifier; several are asked for together (default: the only one)")
	flags.StringVar(&s.PolicyField, "policy-field", "", "`field` with the name of the policy that a line asks for")
	flags.StringVar(&s.Identifier, "identifier", accesslog.FieldIP, "`field` with the identifier")
	flags.StringVar(&s.Cost, "cost", "", "`field` with the cost of a line (default: 1)")
	flags.StringVar(&s.Limit, "limit", "",
		"`field` with the limit of a line, for policies that take it from requests (default: the policy's default)")
	flags.StringVar(&s.Confirmed, "confirmed", "",
		"`field` that says whether the code was entered: a time, true or 1 (default: policies that depend on it are not judged)")
	flags.Var(&list[simulate.Condition]{into: &s.Where, kind: "field=pattern", parse: simulate.ParseCondition}, "where",
		"use only lines whose field matches the pattern, in which * is any text; != is for lines that do not match; all conditions must hold")
	command.Var(flags, &s.Format, "format", accesslog.FormatAuto, "format",
		"format of the logs: "+strings.Join(accesslog.Formats(), ", ")+", or the format of lines as in nginx's log_format",
		func(text string) (string, error) { return text, accesslog.CheckFormat(text) })
	flags.StringVar(&s.TimeField, "time-field", "", "`field` with the time (default: the usual one of the format)")
	command.Var(flags, &s.Reorder, "reorder", "10s", "duration", "how far lines may be out of order: they are sorted within this time",
		command.Between(0, 24*time.Hour))
	flags.BoolVar(&s.asJSON, "json", false, "print JSON instead of text")
	flags.StringVar(&s.html, "html", "", "`file` for a page of HTML with plots, which needs no network")
	flags.BoolVar(&s.ShowIdentifiers, "show-identifiers", false, "show callers and unreadable lines as they are in the logs")
	command.Var(flags, &s.MaxCallers, "max-callers", fmt.Sprint(replay.DefaultMaxCallers), "n",
		"maximum of callers within their windows at the same time, each of 256 bytes or more", command.AtLeastOne)
}

// list is a flag that may be repeated, with a T each time. It implements pflag.Value.
type list[T any] struct {
	into  *[]T
	kind  string
	parse func(string) (T, error)
}

// String returns the default, which is empty.
func (l *list[T]) String() string { return "" }

// Type returns the name of the value in the help.
func (l *list[T]) Type() string { return l.kind }

// Set parses text and adds it to the list.
func (l *list[T]) Set(text string) error {
	one, err := l.parse(text)
	if err == nil {
		*l.into = append(*l.into, one)
	}
	return err
}

func (s *simulation) run(cmd *cobra.Command, logs []string) (err error) {
	if s.policies == "" {
		return errors.New("give --policies FILE, the policies to try")
	}
	if s.Policies, err = policyfile.Load(s.policies); err != nil {
		return err
	}
	if s.against != "" {
		if s.Against, err = policyfile.Load(s.against); err != nil {
			return err
		}
	}
	s.Logs, s.Stdin = logs, cmd.InOrStdin()
	bar := newProgressBar(cmd.ErrOrStderr())
	s.Progress = bar.show
	made, err := simulate.Run(cmd.Context(), &s.Options)
	bar.remove()
	switch {
	case cmd.Context().Err() != nil:
		return command.Fail(errors.New("interrupted"))
	case err != nil:
		return err
	}
	if s.html != "" {
		if err := writePage(made, s.html); err != nil {
			return command.Fail(fmt.Errorf("--html: %w", err))
		}
	}
	if s.asJSON {
		return made.WriteJSON(cmd.OutOrStdout())
	}
	return made.WriteText(cmd.OutOrStdout())
}

func writePage(r *report.Report, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(r.WriteHTML(f), f.Close())
}

// progressBar shows the progress of a simulation on a terminal. Elsewhere it shows nothing.
type progressBar struct {
	out   io.Writer // nil: it is not a terminal
	began time.Time
	last  time.Time
}

// progressEvery is the shortest interval at which the bar is drawn.
const progressEvery = 200 * time.Millisecond

func newProgressBar(out io.Writer) *progressBar {
	bar := new(progressBar)
	if f, isFile := out.(*os.File); isFile {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			bar.out, bar.began = out, time.Now()
		}
	}
	return bar
}

// clearLine moves the cursor to the start of the line and clears it.
const clearLine = "\r\x1b[K"

func (b *progressBar) show(read, size, lines int64) {
	now := time.Now()
	if b.out == nil || now.Sub(b.last) < progressEvery {
		return
	}
	b.last = now
	fmt.Fprint(b.out, clearLine, progressText(read, size, lines, now.Sub(b.began)))
}

func (b *progressBar) remove() {
	if b.out != nil && !b.last.IsZero() {
		fmt.Fprint(b.out, clearLine)
	}
}

// progressText returns the bar: the share of the logs that is read, if their size is known, and the speed.
func progressText(read, size, lines int64, since time.Duration) string {
	text := fmt.Sprintf("%d lines", lines)
	if since > 0 {
		text += fmt.Sprintf(", %.0f a second", float64(lines)/since.Seconds())
	}
	if size == 0 {
		return text
	}
	const width = 30
	done := int(min(1, float64(read)/float64(size)) * width)
	bar := strings.Repeat("#", done) + strings.Repeat(".", width-done)
	return fmt.Sprintf("[%s] %d %%, %s", bar, 100*read/size, text)
}
