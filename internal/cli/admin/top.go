package admin

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// frameEvery is the interval between two frames.
const frameEvery = time.Second

func newTop(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top",
		Args:  command.NoArgs,
		Short: "Show live the decisions, the stores, the clocks and the peers of all instances",
		Long: "Show live the decisions, the stores, the clocks and the peers of all instances, with the figures of the live page.\n" +
			"The server asks all instances that decide together, each of which must run with --ui, and names those that do not\n" +
			"answer. Control-C ends it.\n\n" +
			"Columns with /S have decisions per second, of the last seconds. Those with /H have the sum of the last hour: WOULD/H\n" +
			"is of calls that mode shadow allowed, and mode enforce would deny. SHARE is the share that is denied. Those with /D\n" +
			"have units of the last day, or their cost, under policies that depend on confirmations; their SHARE is confirmed, and BOUND\n" +
			"is the part of a bound of unconfirmed units that is used. Within the last minute, half of all requests took no longer\n" +
			"than p50, and 99 of 100 no longer than p99. The clock is that of the instance that is furthest off. The table of shadows\n" +
			"always covers all instances, and is read every ten seconds.\n" +
			"A terminal that is too small gets short names and fewer rows." +
			remote.Notes + "  0  shown\n  2  error: standard error says why",
		Example: "  ratelimitd top\n  ratelimitd top --once -o json\n  ratelimitd top --instance 10.0.0.11:7946",
	}
	asker := remote.NewAsker(p, cmd)
	asker.AddOutput(cmd)
	once := cmd.Flags().Bool("once", false, "print one frame, and end")
	instance := cmd.Flags().String("instance", "",
		"show one instance alone, by the `id` of a member, the beginning of one, or an address for peers")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := asker.Load(cmd); err != nil {
			return err
		}
		if *once {
			return printFrame(cmd, asker, *instance)
		}
		return watch(cmd, asker, *instance)
	}
	return cmd
}

// printFrame prints one frame.
func printFrame(cmd *cobra.Command, asker *remote.Asker, instance string) error {
	var state ui.State
	document, err := asker.Client().GetState(cmd.Context(), instance, &state)
	if err != nil {
		return err
	}
	return asker.Print(cmd, document, func(out *bytes.Buffer) {
		var shadows shadowTable
		shadows.refresh(cmd.Context(), asker.Client())
		width, _ := newScreen(cmd.OutOrStdout()).size() // lines that do not fit can be scrolled to
		writeFrame(out, &state, &shadows, width, 0)
	})
}

// watch shows a frame every second until the command is interrupted. It returns an error if the server does not answer
// the first time, and waits for a server that stops answering later.
func watch(cmd *cobra.Command, asker *remote.Asker, instance string) error {
	ctx, screen := cmd.Context(), newScreen(cmd.OutOrStdout())
	tick := time.NewTicker(frameEvery)
	defer tick.Stop()
	var shadows shadowTable
	for shown := false; ; {
		var frame bytes.Buffer
		var state ui.State
		_, err := asker.Client().GetState(ctx, instance, &state)
		switch {
		case ctx.Err() != nil:
			return screen.close()
		case err != nil && !shown:
			return err
		case err != nil:
			fmt.Fprintf(&frame, "no figures since then: %v\n", err)
		default:
			shadows.refresh(ctx, asker.Client())
			width, height := screen.size()
			writeFrame(&frame, &state, &shadows, width, height-1) // the cursor's line is the last
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

// screen shows frames: in place on a terminal, else one after the other.
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

// Control sequences of a terminal (ECMA-48, and xterm's alternate screen).
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // which keeps the screen's earlier contents, and hides the cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// show shows as much of a frame as the terminal has room for.
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
	width, height := s.size()
	if height > 0 {
		lines = lines[:min(len(lines), max(1, height-1))]
	}
	for _, line := range lines {
		b.WriteString(cut(line, width) + clearLine + "\r\n")
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(s.out, b.String())
	return err
}

// size returns the columns and lines of the terminal, 0 if they are not known.
func (s *screen) size() (width, height int) {
	if s.file == nil {
		return 0, 0
	}
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// cut returns line, shortened to width and with "…" at its end if it is longer. A width of 0 is no bound.
func cut(line string, width int) string {
	runes := []rune(line)
	if width <= 0 || len(runes) <= width {
		return line
	}
	return string(runes[:width-1]) + "…"
}

// close restores the terminal.
func (s *screen) close() error {
	if s.file == nil {
		return nil
	}
	_, err := io.WriteString(s.out, leaveScreen)
	return err
}
