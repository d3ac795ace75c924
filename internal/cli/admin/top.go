package admin

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// frameEvery is how often top shows anew.
const frameEvery = time.Second

func newTop(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Args:  command.NoArgs,
		Short: "Show live what a server decides, and how its store, clock and peers are",
		Long: "Show live what a server decides, and how its store, clock and peers are, as its live page does: of that one\n" +
			"instance, which serves with --ui. Rates are of the last seconds, latencies of the last minute, sums of the last\n" +
			"hour. What shadows would deny is of all instances, every ten seconds. Control-C ends it." +
			remote.Notes + "  0  shown\n  2  error: standard error says why",
		Example: "  ratelimitd top\n  ratelimitd top --once -o json",
	}
	asker := remote.NewAsker(p, cmd)
	asker.AddOutput(cmd)
	once := cmd.Flags().Bool("once", false, "print one frame, and end")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := asker.Load(cmd); err != nil {
			return err
		}
		if *once {
			return printFrame(cmd, asker)
		}
		return watch(cmd, asker)
	}
	return cmd
}

// printFrame prints how the server is now.
func printFrame(cmd *cobra.Command, asker *remote.Asker) error {
	var state ui.State
	document, err := asker.Client().GetState(cmd.Context(), &state)
	if err != nil {
		return err
	}
	return asker.Print(cmd, document, func(out *bytes.Buffer) {
		var shadows shadowTable
		shadows.refresh(cmd.Context(), asker.Client())
		writeState(out, &state)
		shadows.write(out, state.Now)
	})
}

// watch shows how the server is, every second until the command is interrupted. A server that does
// not answer the first time ends it; one that falls silent is waited for.
func watch(cmd *cobra.Command, asker *remote.Asker) error {
	ctx, screen := cmd.Context(), newScreen(cmd.OutOrStdout())
	tick := time.NewTicker(frameEvery)
	defer tick.Stop()
	var shadows shadowTable
	for shown := false; ; {
		var frame bytes.Buffer
		var state ui.State
		_, err := asker.Client().GetState(ctx, &state)
		switch {
		case ctx.Err() != nil:
			return screen.close()
		case err != nil && !shown:
			return err
		case err != nil:
			fmt.Fprintf(&frame, "no figures since then: %v\n", err)
		default:
			shadows.refresh(ctx, asker.Client())
			writeState(&frame, &state)
			shadows.write(&frame, state.Now)
		}
		if err := screen.show(frame.Bytes(), !shown); err != nil {
			return err
		}
		shown = true
		select {
		case <-ctx.Done():
			return screen.close()
		case <-tick.C:
		}
	}
}

// screen is where frames are shown: in place on a terminal, else one after the other.
type screen struct {
	out  io.Writer
	file *os.File // the terminal; nil: there is none
}

func newScreen(out io.Writer) *screen {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &screen{out, file}
	}
	return &screen{out: out}
}

// What steers a terminal (ECMA-48, and xterm's alternate screen).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // which leaves what was there before, and hides the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// show shows a frame, as much of it as there is room for.
func (s *screen) show(frame []byte, first bool) error {
	if s.file == nil {
		if !first {
			frame = append([]byte("\n"), frame...)
		}
		_, err := s.out.Write(frame)
		return err
	}
	var b strings.Builder
	if first {
		b.WriteString(enterScreen)
	}
	b.WriteString(toTop)
	lines := strings.Split(strings.TrimSuffix(string(frame), "\n"), "\n")
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err == nil {
		lines = lines[:min(len(lines), max(1, height-1))]
	}
	for _, line := range lines {
		if err == nil {
			line = cut(line, width)
		}
		b.WriteString(line + clearLine + "\r\n")
	}
	b.WriteString(clearBelow)
	_, err = io.WriteString(s.out, b.String())
	return err
}

// cut returns as much of a line as a terminal so wide shows in one.
func cut(line string, width int) string {
	runes := []rune(line)
	return string(runes[:min(len(runes), max(0, width))])
}

// close leaves the terminal as it was.
func (s *screen) close() error {
	if s.file == nil {
		return nil
	}
	_, err := io.WriteString(s.out, leaveScreen)
	return err
}

// writeState writes a frame.
func writeState(out *bytes.Buffer, s *ui.State) {
	i := &s.Instance
	fmt.Fprintf(out, "%s, up %s: %s, %s\n", s.Now.Local().Format(time.TimeOnly), s.Now.Sub(i.Started).Round(time.Second),
		remote.Printable(i.Name), remote.Printable(i.Version))
	d := &s.Decisions
	fmt.Fprintf(out, "decisions   %s/s allowed, %s/s denied, %s/s would be denied\n",
		rate(d.AllowedPerSecond), rate(d.DeniedPerSecond), rate(d.WouldDenyPerSecond))
	fmt.Fprintf(out, "latency     p50 %s, p99 %s\n", latency(s.Latency.P50MS), latency(s.Latency.P99MS))
	fmt.Fprintf(out, "store       %s\n", storeText(s))
	fmt.Fprintf(out, "last hour   %s store failures, %s degraded decisions\n", number(s.Store.Failures), number(s.Store.Degraded))
	fmt.Fprintf(out, "clock       %s\n", clockText(s))
	for _, w := range s.Warnings {
		fmt.Fprintf(out, "warning     %s\n", remote.Printable(w))
	}
	rows := [][]string{{"POLICY", "MODE", "ALLOWED/S", "DENIED/S", "WOULD DENY/S", "ALLOWED/H", "DENIED/H", "WOULD DENY/H"}}
	for i := range s.Policies {
		p := &s.Policies[i]
		rows = append(rows, []string{
			remote.Printable(p.Name), remote.Printable(p.Mode), rate(p.AllowedPerSecond), rate(p.DeniedPerSecond), rate(p.WouldDenyPerSecond),
			number(p.Allowed), number(p.Denied), number(p.WouldDeny),
		})
	}
	out.WriteByte('\n')
	writeColumns(out, rows, 2)
	if s.LeftOut > 0 {
		fmt.Fprintf(out, "and %d quieter policies\n", s.LeftOut)
	}
	if len(s.Worst) > 0 {
		out.WriteByte('\n')
		writeColumns(out, worstRows(s.Worst), 2)
	}
	if s.Members != nil {
		out.WriteByte('\n')
		writeColumns(out, memberRows(s.Members), 2)
	}
}

// worstRows are the hashed keys that went furthest past a limit.
func worstRows(worst []ui.WorstKey) [][]string {
	rows := [][]string{{"FURTHEST PAST A LIMIT", "POLICY", "ATTEMPTS"}}
	for _, w := range worst {
		rows = append(rows, []string{remote.Printable(w.Key), remote.Printable(w.Policy), fmt.Sprint(w.Attempts)})
	}
	return rows
}

func storeText(s *ui.State) string {
	how := "answers"
	switch {
	case !s.Store.Ready:
		how = "is not ready"
	case s.Store.BreakerOpen:
		how = "fails, and is given up on for now"
	}
	return fmt.Sprintf("%s %s: p50 %s, p99 %s", remote.Printable(s.Instance.Store), how,
		latency(s.Store.Latency.P50MS), latency(s.Store.Latency.P99MS))
}

func clockText(s *ui.State) string {
	if s.Clock.OffsetMS == nil {
		return "one, which all go by"
	}
	text := fmt.Sprintf("%+.2f ms from the store's, %g ms tolerated", *s.Clock.OffsetMS, s.Instance.ClockToleranceMS)
	if !s.Clock.WithinTolerance {
		text += ": it is off"
	}
	return text
}

func memberRows(m *ui.Members) [][]string {
	rows := [][]string{{"MEMBER", "ADDRESS", "OWNS"}}
	for _, member := range m.List {
		id, owns := remote.Printable(member.ID), fmt.Sprintf("%.1f %%", 100*member.Share)
		if member.Self {
			id += " (asked)"
		}
		if m.Mode == "shared" {
			owns = "shared"
		}
		address := remote.Printable(member.Address)
		if address == "" {
			address = "-"
		}
		rows = append(rows, []string{id, address, owns})
	}
	return rows
}

// writeColumns writes rows of which the first few columns are text, on the left, and the others
// figures, on the right.
func writeColumns(out *bytes.Buffer, rows [][]string, texts int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if i < texts {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

func rate(perSecond float64) string { return fmt.Sprintf("%.1f", perSecond) }

func number(n float64) string { return fmt.Sprintf("%.0f", n) }

func latency(ms *float64) string {
	if ms == nil {
		return "-"
	}
	if *ms < 1 {
		return fmt.Sprintf("%.2f ms", *ms)
	}
	return fmt.Sprintf("%.1f ms", *ms)
}
