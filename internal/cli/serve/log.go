package serve

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"regexp"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/throttle"
)

// serverLog returns what an http.Server logs to, at a level of the service's log. Addresses are
// taken out of its lines: those of clients may be identifiers. Strangers can cause as many lines as
// they like, so there is one a second of failed handshakes, and one of everything else.
func (s *service) serverLog(level slog.Level) *log.Logger {
	return log.New(&serverLines{to: slog.NewLogLogger(s.log.Handler(), level).Writer(), now: s.process.Now}, "", 0)
}

// takeStandardLog has lines of the standard log, which net/http's client of the application writes
// to and has no other for, end up in the log of the service, as warnings, until back is called.
func (s *service) takeStandardLog() (back func()) {
	flags, out := log.Flags(), log.Writer()
	log.SetFlags(0)
	log.SetOutput(s.serverLog(slog.LevelWarn).Writer())
	return func() {
		log.SetFlags(flags)
		log.SetOutput(out)
	}
}

type serverLines struct {
	to         io.Writer
	now        func() time.Time
	handshakes throttle.Lines
	others     throttle.Lines
}

// addressAndPort is an address as package net writes it.
var addressAndPort = regexp.MustCompile(`(\d+\.\d+\.\d+\.\d+|\[[0-9a-fA-F:.]+(%\w+)?\]):\d+`)

// quotation begins what net/http repeats of an answer that nobody asked for: it may be about
// anybody.
var quotation = []byte(" starting with ")

// Write logs one line.
func (s *serverLines) Write(line []byte) (int, error) {
	lines := &s.others
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		lines = &s.handshakes
	}
	unlogged, pass := lines.Pass(s.now())
	if !pass {
		return len(line), nil
	}
	said, _, _ := bytes.Cut(line, quotation)
	said = addressAndPort.ReplaceAll(bytes.TrimRight(said, "\n"), []byte("a client"))
	if unlogged > 0 {
		said = fmt.Appendf(said, " (%d more lines like it before)", unlogged)
	}
	if _, err := s.to.Write(said); err != nil {
		return 0, err
	}
	return len(line), nil
}
